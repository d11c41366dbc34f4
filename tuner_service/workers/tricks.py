"""json-tricks without the libraries that it imports for encoders of its own, where they happen to be installed."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType


def import_json_tricks(*refused: str) -> ModuleType:
    """The module, imported without pandas (0.4 s of a worker's start) and without what is ``refused``.

    What was imported before stays. A class of a user finds pandas' encoders in their places all the same: they import
    pandas when they meet a value that nobody else knows.
    """
    is_first = "json_tricks" not in sys.modules
    has_pandas = is_first and "pandas" not in sys.modules and find_spec("pandas") is not None
    names = [name for name in (*refused, "pandas") if is_first and name not in sys.modules]
    for name in names:
        sys.modules[name] = None  # type: ignore[assignment]  # the documented way to have an import refused
    try:
        module = import_module("json_tricks")
    finally:
        for name in names:
            del sys.modules[name]
    if has_pandas:
        nonp = import_module("json_tricks.nonp")
        for known, lazy, missing in (
            (nonp.DEFAULT_ENCODERS, nonp.pandas_encode, nonp.nopandas_encode),
            (nonp.DEFAULT_HOOKS, nonp.pandas_hook, nonp.nopandas_hook),
        ):
            known[known.index(missing)] = lazy
    return module
