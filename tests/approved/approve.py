"""Writes the approved texts anew: ``python -m tests.approved.approve``. Read the difference before committing it.

``--schema``: only openapi.json, which clients are generated from (``make openapi``).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path

from tests.api_service import an_api_service
from tuner_service.cli.main import build_parser

HERE = Path(__file__).resolve().parent


def approve() -> None:
    approve_help()
    approve_schema()


def help_of(parser: argparse.ArgumentParser) -> str:
    """As Python 3.13 and later write it, which name the value of an option once."""
    return re.sub(r"(-\w) (\S+), (--\S+) \2(?=\s)", r"\1, \3 \2", parser.format_help())


def approve_help() -> None:
    os.environ["COLUMNS"] = "100"
    parser = build_parser()
    (subparsers,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    (HERE / "help").mkdir(exist_ok=True)
    for name, described in {"tuner": parser, **subparsers.choices}.items():
        (HERE / "help" / f"{name}.txt").write_text(help_of(described), encoding="utf-8")


def approve_schema() -> None:
    schema = an_api_service().client.app.openapi()
    text = json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False)
    (HERE / "openapi.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["--schema"]:
        approve_schema()
    else:
        approve()
