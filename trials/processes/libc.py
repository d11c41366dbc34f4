"""The C library of this process. Loaded once: each ``CDLL`` makes a class, which costs more than most calls.

A supervisor imports this module when it starts, so the module imports little.
"""

from __future__ import annotations

import ctypes

LIBC = ctypes.CDLL(None, use_errno=True)
