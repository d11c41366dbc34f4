"""The ``trial`` of an experiment file, and the template that it stands for, both ways.

A setting that stands in both under one name and as one value needs no line here. What the file shapes otherwise
(groups, units left out of names, one mapping of variables for texts and secrets) is shaped in these two functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trials.wire.plain import from_plain, to_plain
from tuner_service.domain.experiment import CodeOrigin, TrialTemplate
from tuner_service.domain.resources import GpuRequest
from tuner_service.service.digests import DIGEST_PREFIX, digest_view
from tuner_service.service.inputs import inputs_form, item_form

NAMES = {  # file: template
    "heartbeat": "heartbeat_s",
    "lease": "lease_s",
    "max_duration": "max_duration_s",
    "stop_grace": "stop_grace_s",
}


def template_of(form: Mapping[str, Any]) -> TrialTemplate:
    """The template of a ``form`` that was checked: what ``form_of`` gives, where what has a default may be left out."""
    rest = dict(form)
    code, arguments, keep = rest.pop("code", None), rest.pop("arguments", None), rest.pop("keep", {})
    variables, resources = rest.pop("environment", {}), rest.pop("resources", {})
    origin = rest.pop("code_origin", None)
    gpus = resources.get("gpus")
    plain = {
        "code_digest": None if code is None else code.removeprefix(DIGEST_PREFIX),
        "code_origin": None if origin is None else _origin_of(origin),
        "environment": {name: value for name, value in variables.items() if isinstance(value, str)},
        "secrets": {name: value["secret"] for name, value in variables.items() if not isinstance(value, str)},
        "memory_bytes": resources.get("memory"),
        "cpus": resources.get("cpus", 0.0),
        "gpus": gpus if isinstance(gpus, float) else 0.0,
        "gpu_request": gpus if isinstance(gpus, str) else GpuRequest.COUNT.value,
        "gpu_memory_bytes": resources.get("gpu_memory") or 0,
        "labels": resources.get("labels") or {},
        **{f"arguments_{name}": value for name, value in (arguments or {}).items()},
        **{f"keep_{name}": value for name, value in keep.items()},
        **{NAMES.get(name, name): value for name, value in rest.items()},
    }
    template: TrialTemplate = from_plain(TrialTemplate, plain, where="trial")
    return template


def form_of(template: TrialTemplate) -> dict[str, Any]:
    """As the file has it, with every default filled in."""
    rest = to_plain(template)
    prefix, delimiter = rest.pop("arguments_prefix"), rest.pop("arguments_delimiter")
    secrets = rest.pop("secrets")
    del rest["code_digest"]
    del rest["code_origin"], rest["inputs"], rest["code_asset"]
    gpus, request, labels = rest.pop("gpus"), rest.pop("gpu_request"), rest.pop("labels")
    file_name = {theirs: ours for ours, theirs in NAMES.items()}
    return {
        "code": _code_form(template),
        "code_origin": None if template.code_origin is None else _origin_form(template.code_origin),
        "command": rest.pop("command") or None,
        "arguments": None if prefix is None else {"prefix": prefix, "delimiter": delimiter},
        "environment": {**rest.pop("environment"), **{name: {"secret": of} for name, of in secrets.items()}},
        "keep": {"last": rest.pop("keep_last"), "best": rest.pop("keep_best")},
        "resources": {
            "cpus": rest.pop("cpus"),
            "gpus": gpus if request == GpuRequest.COUNT else request,
            "gpu_memory": rest.pop("gpu_memory_bytes") or None,
            "memory": rest.pop("memory_bytes"),
            **({"labels": labels} if labels else {}),
        },
        **inputs_form(template.inputs),
        **{file_name.get(name, name): value for name, value in rest.items()},
    }


def _code_form(template: TrialTemplate) -> str | dict[str, Any] | None:
    if template.code_asset is not None:
        return item_form(template.code_asset)
    return None if template.code_digest is None else digest_view(template.code_digest)


def _origin_of(form: Mapping[str, Any]) -> dict[str, Any]:
    named = {name: form.get(name) for name in ("commit", "branch", "ref")}
    digest = form.get("changes")
    changes = None if digest is None else digest.removeprefix(DIGEST_PREFIX)
    return {**named, "is_dirty": form.get("dirty", False), "changes_digest": changes}


def _origin_form(origin: CodeOrigin) -> dict[str, Any]:
    return {
        "commit": origin.commit,
        "branch": origin.branch,
        "ref": origin.ref,
        "dirty": origin.is_dirty,
        "changes": None if origin.changes_digest is None else digest_view(origin.changes_digest),
    }


def origin_of(form: Mapping[str, Any]) -> CodeOrigin:
    """Of a ``form`` whose changes are a digest."""
    return CodeOrigin(**_origin_of(form))
