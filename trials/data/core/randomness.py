"""Randomness of samples: keyed by (seed, epoch, index), so it does not matter who makes a sample, or when.

``transform(sample, rng)`` is given a counter-based generator (NumPy's Philox). Code that draws from the global
generators of random, NumPy and torch instead is as exact: they are reseeded from the same key before each sample.
"""

from __future__ import annotations

import _random
import ctypes
import random
import struct
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trials.data.core.keys import WORD, derive, mixed

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes, _memcmp.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t), ctypes.c_int
_MT19937_BYTES = 625 * 4  # key and position, as NumPy lays them out at state_address


class SampleKey(NamedTuple):
    """128 bits in two words."""

    high: int
    low: int


class SampleKeys:
    """The keys of the samples of (``seed``, ``epoch``)."""

    def __init__(self, *, seed: int, epoch: int) -> None:
        key = derive("sample", seed, epoch)
        self._high, self._low = key >> 64, key & WORD

    def of(self, index: int) -> SampleKey:
        word = mixed((index & WORD) ^ self._low)
        return SampleKey(mixed(word ^ self._high), word)


class SampleGenerator:
    """One NumPy generator that is set to the beginning of a sample's stream.

    What ``at`` returns is the same object every time: a transform may use it until it returns, and not keep it.
    """

    def __init__(self) -> None:
        self._philox = np.random.Philox(key=0)
        self._generator = np.random.Generator(self._philox)
        self._key: NDArray[np.uint64] = np.zeros(2, dtype=np.uint64)
        zeros = np.zeros(4, dtype=np.uint64)
        self._state: Any = {
            "bit_generator": "Philox",
            "state": {"counter": zeros, "key": self._key},
            "buffer": zeros,
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }

    def at(self, key: SampleKey) -> np.random.Generator:
        """The same stream as ``numpy.random.Generator(numpy.random.Philox(key=key.high << 64 | key.low))``."""
        self._key[0], self._key[1] = key.low, key.high
        self._philox.state = self._state
        return self._generator


class GlobalGenerators:
    """The generators that a process shares with its libraries: random, NumPy's and, where it is imported, torch's."""

    NAMES = ("random", "numpy", "torch")

    def __init__(self) -> None:
        self._torch: Any = None
        self._words = b""  # of NumPy's generator, when its state was last taken
        self._numpy: Any = None

    def seed(self, key: SampleKey, names: frozenset[str] = frozenset(NAMES)) -> None:
        """Each of ``names`` begins the stream of the sample; under 10 µs for all three."""
        if "random" in names:
            random.seed(key.high << 64 | key.low)
        if "numpy" in names:
            np.random.seed(key.low & 0xFFFFFFFF)
        if "torch" in names:
            torch = self._loaded_torch()
            if torch is not None:
                torch.default_generator.manual_seed(key.high >> 1)

    def mark(self) -> Mark:
        """Where the generators stand, to be given to ``moved``. It misses a number that NumPy or random keep for
        their next normal draw, so it is for generators that were seeded here and not used by anyone else."""
        torch = self._loaded_torch()
        return Mark(
            random=_python_words(),
            numpy=ctypes.string_at(_numpy_address(), _MT19937_BYTES),
            torch=None if torch is None else torch.default_generator.get_state(),
        )

    def moved(self, since: Mark) -> frozenset[str]:
        """The names of the generators that were drawn from (or seeded) since."""
        found = set()
        if _python_words() != since.random:
            found.add("random")
        if ctypes.string_at(_numpy_address(), _MT19937_BYTES) != since.numpy:
            found.add("numpy")
        torch = self._loaded_torch()
        if torch is not None and (
            since.torch is None or not _is_same(torch.default_generator.get_state(), since.torch)
        ):
            found.add("torch")
        return frozenset(found)

    def capture(self) -> Captured:
        """Everything, to be put back exactly."""
        torch = self._loaded_torch()
        words = ctypes.string_at(_numpy_address(), _MT19937_BYTES)
        if words != self._words or self._numpy is None or self._numpy["has_gauss"]:
            self._numpy = np.random.get_state(legacy=False)  # slow beside the rest, so it is done when it must
            self._words = words
        return Captured(
            random=_python_words(),
            gauss=_python().gauss_next,
            numpy=self._numpy,
            numpy_words=words,
            torch=None if torch is None else torch.default_generator.get_state(),
        )

    def changed(self, since: Captured) -> frozenset[str]:
        """As ``moved``, and misses nothing: for generators that the trial draws from, too."""
        found = set()
        if _python_words() != since.random or _python().gauss_next != since.gauss:
            found.add("random")
        # NumPy draws normal numbers in pairs and caches the second one. A draw that takes it from the cache leaves the
        # words as they are, so where there was a cached number the full state has to be compared.
        if ctypes.string_at(_numpy_address(), _MT19937_BYTES) != since.numpy_words or (
            since.numpy["has_gauss"] and not np.random.get_state(legacy=False)["has_gauss"]
        ):
            found.add("numpy")
        torch = self._loaded_torch()
        if torch is not None:
            same = since.torch is not None and _is_same(torch.default_generator.get_state(), since.torch)
            found.update(() if same else ("torch",))
        return frozenset(found)

    def put_back(self, captured: Captured, names: frozenset[str] = frozenset(NAMES)) -> None:
        if "random" in names:
            _random.Random.setstate(_python(), _state_of(captured.random))
            _python().gauss_next = captured.gauss
        if "numpy" in names:
            np.random.set_state(captured.numpy)
        torch = self._loaded_torch()
        if "torch" in names and torch is not None and captured.torch is not None:
            torch.default_generator.set_state(captured.torch)

    def _loaded_torch(self) -> Any:
        if self._torch is None:
            # While another thread is importing torch the module is in sys.modules, perhaps without its generator.
            module = sys.modules.get("torch")
            self._torch = module if hasattr(module, "default_generator") else None
        return self._torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    random: bytes
    numpy: bytes
    torch: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    random: bytes
    gauss: float | None
    numpy: Any
    numpy_words: bytes
    torch: Any


def _is_same(state: Any, other: Any) -> bool:
    """Of two states of torch's generator: whether their bytes are equal. ``torch.equal`` takes ten times as long."""
    size: int = state.nbytes
    return bool(size == other.nbytes and _memcmp(state.data_ptr(), other.data_ptr(), size) == 0)


def _python() -> Any:
    return random._inst  # noqa: SLF001  # what random's functions are methods of


def _python_words() -> bytes:
    """The state of random's generator: read where it lies, since asking for it makes 625 numbers, for 9 µs."""
    if _LAYOUT_IS_KNOWN:
        return ctypes.string_at(id(_python()) + _HEAD_BYTES, _WORDS_BYTES)
    *words, position = _random.Random.getstate(_python())
    return _WORDS.pack(position, *words)


def _state_of(words: bytes) -> tuple[int, ...]:
    """What ``setstate`` takes."""
    position, *state = _WORDS.unpack(words)
    return (*state, position)


def _layout_is_known() -> bool:
    """Whether a generator of this interpreter lies in memory as CPython's source says: its position, then its words."""
    if sys.implementation.name != "cpython" or _random.Random.__basicsize__ < _HEAD_BYTES + _WORDS_BYTES:
        return False
    probe = _random.Random(1)
    probe.random()
    read = _WORDS.unpack(ctypes.string_at(id(probe) + _HEAD_BYTES, _WORDS_BYTES))
    return (*read[1:], read[0]) == probe.getstate()


_HEAD_BYTES = object.__basicsize__
_WORDS = struct.Struct("=i624I")
_WORDS_BYTES = _WORDS.size
_LAYOUT_IS_KNOWN = _layout_is_known()


def _numpy_address() -> int:
    address: int = np.random.mtrand._rand._bit_generator.ctypes.state_address  # noqa: SLF001  # the global one
    return address
