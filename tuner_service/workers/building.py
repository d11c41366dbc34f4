"""From what an experiment asks for to the folds of its two queues."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TypeVar

from tuner_service.advisors.base import Advisor
from tuner_service.advisors.registry import create_advisor
from tuner_service.assessors.base import Assessor
from tuner_service.assessors.registry import create_assessor
from tuner_service.domain.errors import Fault, InputError, SearchSpaceNotSupportedError
from tuner_service.domain.experiment import AlgorithmSpec
from tuner_service.domain.search_space import parse_search_space
from tuner_service.tuners.base import Tuner
from tuner_service.tuners.registry import create_tuner
from tuner_service.workers.folds.advisor import AdvisorFold
from tuner_service.workers.folds.folding import AssessorFold, TunerFold
from tuner_service.workers.messages import Initialize

Algorithm = TypeVar("Algorithm")


def add_code_folder(code_folder: str | None) -> None:
    """Make the modules of the experiment's code importable, before any other of the same name; and go there."""
    if code_folder is not None and code_folder not in sys.path:
        sys.path.insert(0, code_folder)
        os.chdir(code_folder)


def build_tuner_fold(command: Initialize) -> TunerFold:
    """Whatever the tuner's own constructor raises comes through."""
    spec, space = command.tuner, parse_search_space(command.search_space)
    if spec.class_name is None:
        tuner = create_tuner(spec.name or "", spec.args, space=space, objective=command.objective)
    else:
        found = load_class(spec.class_name, Tuner)  # type: ignore[type-abstract]  # the base is only compared with
        tuner = found(space, command.objective, **spec.args)
    if command.objective.further and not tuner.several_objectives:
        count = len(command.objective.every)
        raise SearchSpaceNotSupportedError(spec.label, "objective", f"it searches for one, not for {count} at a time")
    return TunerFold(tuner, seed=command.seed, space=space if command.checks_space else None)


def build_advisor_fold(command: Initialize, spec: AlgorithmSpec) -> AdvisorFold:
    """Whatever the advisor's own constructor raises comes through."""
    space = parse_search_space(command.search_space)
    if spec.class_name is None:
        advisor = create_advisor(spec.name or "", spec.args, space=space, objective=command.objective)
    else:
        found = load_class(spec.class_name, Advisor)  # type: ignore[type-abstract]  # the base is only compared with
        advisor = found(space, command.objective, **spec.args)
    checked = space if command.checks_space else None
    return AdvisorFold(advisor, seed=command.seed, deterministic=command.deterministic, space=checked)


def build_assessor_fold(command: Initialize, spec: AlgorithmSpec) -> AssessorFold:
    """Whatever the assessor's own constructor raises comes through."""
    if spec.class_name is None:
        assessor = create_assessor(spec.name or "", spec.args, objective=command.objective)
    else:
        found = load_class(spec.class_name, Assessor)  # type: ignore[type-abstract]  # the base is only compared with
        assessor = found(command.objective, **spec.args)
    return AssessorFold(assessor, deterministic=command.deterministic)


def load_class(path: str, base: type[Algorithm]) -> type[Algorithm]:
    """The class at "package.module:Class". InputError when that is no subclass of ``base``; what its import raises."""
    module_name, colon, class_name = path.partition(":")
    if not (module_name and colon and class_name):
        raise InputError([Fault(pointer="/class", message=f"{path!r} must be written package.module:Class")])
    found = getattr(import_module(module_name), class_name, None)
    if not isinstance(found, type) or not issubclass(found, base):
        what = f"must be a subclass of {base.__module__}.{base.__qualname__}"
        seen = "which is not there" if found is None else f"which is {found!r}"
        raise InputError([Fault(pointer="/class", message=f"{path} {what}, not something {seen}"[:500])])
    return found
