"""Opaque cursors: a page says where the next one begins."""

from __future__ import annotations

import base64


def make_cursor(after: str) -> str:
    return base64.urlsafe_b64encode(after.encode()).decode().rstrip("=")
