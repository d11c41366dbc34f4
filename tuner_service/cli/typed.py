"""What is typed as the fields of a request's body: an option that was left out is not sent."""

from __future__ import annotations

import argparse
import json
import math
from contextlib import suppress
from typing import Any

from tuner_service.cli.argument_types import NO_BOUND
from tuner_service.cli.numbers import is_number
from tuner_service.cli.output.tables import Row

BUDGET = ("trials", "duration", "parallel", "failures")


def given(arguments: argparse.Namespace, names: tuple[str, ...]) -> Row:
    return {name: value for name in names if (value := getattr(arguments, name)) is not None}


def budget_of(arguments: argparse.Namespace) -> Row:
    """With null for what is to have no bound."""
    budget = {name: None if value == NO_BOUND else value for name, value in given(arguments, BUDGET).items()}
    return {"budget": budget} if budget else {}


def assigned(text: str) -> tuple[str, str, str]:
    """Of NAME=VALUE the name, the sign and the rest; a name with the sign in it is a JSON string, ``"a=b"=1``."""
    if text.startswith('"'):
        with suppress(ValueError):
            name, end = json.JSONDecoder().raw_decode(text)
            if text.startswith("=", end):
                return name, "=", text[end + 1 :]
    return text.partition("=")


def metric_of(text: str) -> Any:
    """A number as whatever prints one may write it (.5, -inf, nan), as the API has it; else as ``value_of``."""
    if not is_number(text):
        return value_of(text)
    number = float(text)
    if math.isfinite(number):
        return number if isinstance(found := value_of(text), str) else found
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def value_of(text: str) -> Any:
    """A JSON value where it is one (0.1, true, "7"), else text."""
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text
