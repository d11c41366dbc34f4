"""Key derivation: a key makes one random choice independent of every other, and is a hash of what names the choice."""

from __future__ import annotations

import hashlib

WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def derive(purpose: str, *parts: int | str) -> int:
    """128 bits that depend on the purpose and on every part, and on nothing else; the same on every machine."""
    text = "\x1f".join((purpose, *(f"{type(part).__name__}:{part}" for part in parts)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def mixed(value: int) -> int:
    """A step of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64-bit words; every bit moves every bit."""
    value = (value + _GOLDEN) & WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & WORD
    return value ^ (value >> 31)
