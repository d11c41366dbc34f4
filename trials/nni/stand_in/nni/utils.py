"""The one helper of ``nni.utils`` that trial scripts use."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any


def merge_parameter(base_params: Namespace | dict[str, Any], override_params: Mapping[str, Any]) -> Any:
    """Put ``override_params`` into ``base_params`` and return it; ValueError names one that it does not have."""
    known = base_params if isinstance(base_params, dict) else vars(base_params)
    for name, value in override_params.items():
        if name not in known:
            raise ValueError(f"the search space has {name!r}, which the script's own parameters lack")
        known[name] = value
    return base_params
