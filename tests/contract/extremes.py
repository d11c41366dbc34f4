"""Search spaces, parameters and results at the edge of what the service accepts."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import strategies as st

EDGES = [0.0, -0.0, 5e-324, 2.2e-308, 1e-300, 1e-9, 0.1, 1, 3, 1e6, 2**31, 2**53 - 1, 2**53, 2**53 + 2, 1e17, 1e154]
EDGES += [1e200, 1e300, 1e307, 8e307, 1e308, 1.7976931348623157e308, 2**63 - 1, 2**63, 2**70, 10**400]
NUMBERS = st.sampled_from([*EDGES, *(-edge for edge in EDGES)])
PAIRS = st.one_of(  # mostly in order: the others are refused
    st.tuples(NUMBERS, NUMBERS).map(lambda pair: tuple(sorted(pair))), st.tuples(NUMBERS, NUMBERS)
)
TEXTS = st.sampled_from(["", "a", "a.b", "a/b", "~", "a\nb", " ", "é", "\U0001f600", "\u2028", "=", "--x", "x" * 256])
PLAIN = st.one_of(NUMBERS, TEXTS, st.none(), st.booleans())
VALUES = st.recursive(
    PLAIN, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXTS, inner, max_size=3)), max_leaves=6
)
NNI = st.sampled_from(["uniform", "loguniform", "normal", "lognormal", "randint"])
NNI_QUANTIZED = st.sampled_from(["quniform", "qloguniform", "qnormal", "qlognormal"])
RANGES = st.one_of(
    st.builds(lambda kind, pair: {"_type": kind, "_value": list(pair)}, NNI, PAIRS),
    st.builds(lambda kind, pair, q: {"_type": kind, "_value": [*pair, q]}, NNI_QUANTIZED, PAIRS, NUMBERS),
    st.builds(lambda options: {"_type": "choice", "_value": options}, st.lists(VALUES, min_size=1, max_size=4)),
    st.builds(
        lambda kind, pair, log: {"type": kind, "low": pair[0], "high": pair[1], "log": log},
        st.sampled_from(["float", "int"]),
        PAIRS,
        st.booleans(),
    ),
    st.builds(
        lambda kind, pair, step: {"type": kind, "low": pair[0], "high": pair[1], "step": step},
        st.sampled_from(["float", "int"]),
        PAIRS,
        NUMBERS,
    ),
    st.builds(
        lambda kind, options: {"type": kind, "choices": options},
        st.sampled_from(["ordinal", "permutation", "subset"]),
        st.lists(PLAIN, min_size=1, max_size=4),
    ),
    st.builds(lambda value: {"type": "const", "value": value}, VALUES),
)
PARAMETERS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(TEXTS, VALUES, max_size=3)
RESULTS = st.one_of(
    st.none(), st.sampled_from([math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 5e-324, 0.0, 1e200]), st.floats(0, 1)
)
