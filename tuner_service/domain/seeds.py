"""Where randomness comes from: every generator is a function of (experiment seed, purpose, number)."""

from __future__ import annotations

import hashlib
import random

SEED_BITS = 63


def derive_seed(experiment_seed: int, purpose: str, number: int) -> int:
    """A seed in [0, 2**63) for ``purpose``; the same for ever, on every machine and version."""
    text = f"{experiment_seed}:{purpose}:{number}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big") >> (64 - SEED_BITS)


def trial_seed(experiment_seed: int, number: int) -> int:
    """What the script of trial ``number`` seeds with: the same for every attempt; 32 bits, as NumPy wants."""
    return derive_seed(experiment_seed, "trial", number) & 0xFFFFFFFF


def suggestion_generator(experiment_seed: int, number: int, index: int = 0) -> random.Random:
    """The generator handed to the tuner for parameters ``index`` of trial ``number``."""
    purpose = f"suggestion {index}" if index else "suggestion"
    return random.Random(derive_seed(experiment_seed, purpose, number))  # noqa: S311  # a search, not a secret
