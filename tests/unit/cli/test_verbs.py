"""Each verb of the command line is a module of its own, found by its name."""

from __future__ import annotations

import argparse
import inspect
from importlib import import_module
from pathlib import Path

from tuner_service.cli import verbs
from tuner_service.cli.main import build_parser


def test_every_verb_has_a_module_and_every_module_is_a_verbs() -> None:
    (commands,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    modules = {parser.get_default("module") for parser in commands.choices.values()}

    # A second word for a verb, as `wait` is for `watch`, is the same parser.
    assert len(modules) == len({id(parser) for parser in commands.choices.values()})
    assert modules == {file.stem for file in Path(verbs.__path__[0]).glob("*.py")} - {"__init__"}
    for name in sorted(modules):
        module = import_module(f"tuner_service.cli.verbs.{name}")
        assert len(inspect.signature(module.run).parameters) == 1, name
