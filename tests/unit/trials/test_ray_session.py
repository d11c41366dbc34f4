"""A session on Ray, as far as it goes without Ray."""

from __future__ import annotations

import sys

import pytest

from trials.tasks import RaySession


def test_without_ray_a_session_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)

    with pytest.raises(ImportError, match=r"pip install 'tuner-service\[ray\]'"):
        RaySession()
