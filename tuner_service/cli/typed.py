"""What is typed as the fields of a request's body: an option that was left out is not sent."""

from __future__ import annotations

import argparse
import json
from typing import Any

from tuner_service.cli.output.tables import Row

BUDGET = ("trials", "duration", "parallel", "failures")


def given(arguments: argparse.Namespace, names: tuple[str, ...]) -> Row:
    return {name: value for name in names if (value := getattr(arguments, name)) is not None}


def budget_of(arguments: argparse.Namespace) -> Row:
    budget = given(arguments, BUDGET)
    return {"budget": budget} if budget else {}


def value_of(text: str) -> Any:
    """A JSON value where it is one (0.1, true, "7"), else text."""
    try:
        return json.loads(text, parse_constant=str)
    except ValueError:
        return text
