"""The trial's seed for the generators that scripts share with their libraries, set before the script begins."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NUMPY_SEED_LIMIT = 1 << 32
TORCH_SEED_LIMIT = 1 << 63


def seed(number: int) -> None:
    """Of ``random``, NumPy's global generator and torch's: now where they are loaded, else when they will be."""
    _when_loaded("random", lambda generators: generators.seed(number))
    # NumPy loads this one when it is first asked for.
    _when_loaded("numpy.random", lambda generators: generators.seed(number % NUMPY_SEED_LIMIT))
    _when_loaded("torch", lambda torch: _seed_torch(torch, number % TORCH_SEED_LIMIT))


def prepare() -> None:
    """Before a fork: load what every trial's seeding would load again."""
    if "numpy" in sys.modules:
        import_module("numpy.random")
    if "torch" in sys.modules:
        _seed_torch(sys.modules["torch"], 0)


def _seed_torch(torch: Any, number: int) -> None:
    versions = torch.version
    if any(getattr(versions, kind, None) for kind in ("cuda", "hip", "xpu")):
        torch.manual_seed(number)
    else:
        # All that manual_seed does where no device can be; it would note down, for each kind, who has called it.
        torch.default_generator.manual_seed(number)


def _when_loaded(name: str, do: Callable[[Any], object]) -> None:
    if name in sys.modules:
        do(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Waiting(name, do))


class _Waiting:
    """A finder that lets the others find ``name``, and acts once it has been loaded."""

    def __init__(self, name: str, do: Callable[[Any], object]) -> None:
        self._name = name
        self._do = do

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        for finder in [finder for finder in sys.meta_path if finder is not self]:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loading(spec, self._loaded)  # type: ignore[assignment]  # by its methods
                return spec
        return None

    def _loaded(self, module: ModuleType) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._do(module)


class _Loading:
    """The loader of the module, followed by one thing more."""

    def __init__(self, spec: ModuleSpec, do: Callable[[ModuleType], object]) -> None:
        self._spec = spec
        self._loader: Any = spec.loader
        self._do = do

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        self._spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._do(module)
