"""Classes written for NNI: how they are found, built, and kept to the draws of the experiment's seed."""

from __future__ import annotations

import copy
import hashlib
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from tuner_service.domain.errors import Fault, InputError
from tuner_service.global_generators import alone
from tuner_service.workers.nni import names


def build(
    class_name: str,
    *,
    code_directory: str,
    class_args: Mapping[str, Any] | None,
    begin: Callable[[Any], object] = lambda _: None,
) -> Any:
    """An object of NNI's ``className``, "module.Class", of a folder of the experiment's code; ``begin`` was called
    with it, and has gone on with the constructor's draws.

    InputError for a name that is no class; whatever its import, its constructor and ``begin`` raise comes through.
    """
    module_name, dot, last = class_name.rpartition(".")
    if not dot:
        raise InputError([_fault(f"{class_name!r} must be written module.Class")])
    names.install()
    folder = str(Path(code_directory).absolute())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    found = getattr(import_module(module_name), last, None)
    if not isinstance(found, type):
        raise InputError([_fault(f"{class_name} is no class of {module_name}.py in {code_directory!r}")])
    with drawing("constructor", class_name):
        made = found(**copy.deepcopy(dict(class_args or {})))
        begin(made)
    return made


@contextmanager
def drawing(*key: object) -> Iterator[None]:
    """Around each call of a class, which may draw from the global generators: they are seeded by ``key``, and nobody
    else draws from them meanwhile. A tuner and an assessor of one experiment are called by a thread each.

    The generators of random, NumPy and torch, as far as they are imported.
    """
    with alone:
        _seed_generators(key)
        yield


def _seed_generators(key: tuple[object, ...]) -> None:
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "big")
    random.seed(number)
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.seed(number & 0xFFFFFFFF)
    if torch is not None:
        torch.manual_seed(number)


def job_id(number: int) -> str:
    """What a class is told of a trial, where NNI has the identifier of a trial job."""
    return f"trial-{number}"


def _fault(message: str) -> Fault:
    return Fault(pointer="/args/class_name", message=message[:500])
