"""What a trial wants of its nodes: labels, and who has brought them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, PlainValidator

from trials.wire.nodes import LABEL, LABELS_LIMIT
from tuner_service.domain.node_kinds import ExecutorRequest
from tuner_service.executor_options import parse_request


def _labels(value: Any) -> Any:
    if not isinstance(value, dict) or len(value) > LABELS_LIMIT:
        raise ValueError(f"should be at most {LABELS_LIMIT} names, each with the value that the node must have")
    for name, wanted in value.items():
        if not (isinstance(name, str) and isinstance(wanted, str) and LABEL.fullmatch(f"{name}={wanted}")):
            raise ValueError(f"should name labels of letters, digits and ._-/:, got {name!r:.70}: {wanted!r:.70}")
    return value


AskedExecutor = Annotated[
    ExecutorRequest, PlainValidator(parse_request, json_schema_input_type=str | dict[str, Any] | None)
]
NodeLabels = Annotated[dict[str, str], BeforeValidator(_labels)]
