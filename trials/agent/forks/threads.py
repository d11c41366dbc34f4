"""Pools of threads that libraries start when they are imported: held back before a fork, given back after it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, MutableMapping

from trials.agent.forks.memory import mappings

# Read by OpenBLAS when it is loaded, in this order; more than one thread would be started at once.
_VARIABLES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
_JEMALLOC_OF_ARROW, _NO_THREAD = "JE_ARROW_MALLOC_CONF", "background_thread:false"
_SETTERS = tuple(
    f"{prefix}openblas_set_num_threads{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", "", "_64")
)


def hold_back(environ: MutableMapping[str, str]) -> None:
    """Libraries imported from now on start no threads.

    pyarrow, which pandas imports, comes with a jemalloc whose thread gives unused memory back to the system. Without
    it that memory is given back when more is taken or freed.
    """
    environ["OPENBLAS_NUM_THREADS"] = "1"
    own = environ.get(_JEMALLOC_OF_ARROW)
    environ[_JEMALLOC_OF_ARROW] = f"{own},{_NO_THREAD}" if own else _NO_THREAD  # of two settings the last one counts


def count() -> int:
    """Threads of this process, also those Python knows nothing of."""
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208  only how many


class Pools:
    """Those of the libraries that are loaded now: found before the fork, which need not wait for it."""

    def __init__(self) -> None:
        self._setters: list[Callable[[ctypes.c_int], object]] = []
        for path in _loaded("openblas"):
            library = ctypes.CDLL(path)
            found = [getattr(library, name) for name in _SETTERS if hasattr(library, name)]
            self._setters += found[:1]

    def give_back(self, variables: Mapping[str, str]) -> None:
        """In the child: as many threads as the libraries would have started by themselves under ``variables``."""
        wanted = next((int(variables[name]) for name in _VARIABLES if variables.get(name, "").isdigit()), 0)
        number = wanted or len(os.sched_getaffinity(0))
        if number > 1:
            for setter in self._setters:
                setter(ctypes.c_int(number))


def _loaded(word: str) -> list[str]:
    paths = (line.split(maxsplit=5)[5] for line in mappings() if word in line and "/" in line)
    return [path for path in dict.fromkeys(paths) if word in path.rpartition("/")[2]]
