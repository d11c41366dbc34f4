"""The C library of this process. Loaded once: each ``CDLL`` makes a class, which costs more than most calls.

Imported by the supervisor, so it stays as small as its start is quick.
"""

from __future__ import annotations

import ctypes

LIBC = ctypes.CDLL(None, use_errno=True)
