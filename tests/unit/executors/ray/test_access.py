"""Who may speak to the cluster that a service starts for itself."""

from __future__ import annotations

from pathlib import Path

from tuner_service.executors.ray.bridge import not_connected
from tuner_service.executors.ray.local_cluster import TOKEN, with_access


def test_access_is_by_the_file_of_the_home_whatever_the_user_has_set_for_other_clusters() -> None:
    others = {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "of another", "RAY_AUTH_TOKEN_PATH": "/x", "PATH": "/bin"}

    found = with_access(others, Path("/home/ray"))

    assert found == {"PATH": "/bin", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": f"/home/ray/{TOKEN}"}
    assert others["RAY_AUTH_TOKEN"] == "of another"


def test_who_cannot_connect_is_told_of_tokens_where_ray_itself_does_not_look_for_one() -> None:
    error = ConnectionError("Failed to connect\n  to Ray cluster")
    said = "Ray at h:1: Failed to connect to Ray cluster"

    assert not_connected("h:1", error, {"RAY_AUTH_MODE": "token"}) == said
    assert not_connected("auto", error, {}) == said.replace("h:1", "auto")
    assert not_connected("h:1", error, {}) == (
        f"{said}; if that cluster asks for a token, start the service with RAY_AUTH_MODE=token"
    )
