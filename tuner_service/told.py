"""Objects that somebody else has sent: what they lack is the sender's fault, and no bug of the reader."""

from __future__ import annotations

from typing import Any


class Told(dict[str, Any]):
    """Raises ``error`` where a KeyError would come."""

    def __init__(self, values: dict[str, Any], error: type[Exception]) -> None:
        super().__init__(values)
        self._error = error

    def __missing__(self, name: str) -> Any:
        raise self._error(f"the answer has no {name!r}; is it a service of Tuner Service, and of this version?")

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)  # who keeps it has a dictionary


def told(value: Any, error: type[Exception]) -> Told | None:
    """``value`` of a JSON answer, an object or nothing; ValueError for anything else."""
    if value is None:
        return None
    if not isinstance(value, dict) or not isinstance(value.get("items", []), list):
        raise ValueError("no object, or one whose items are no list")  # noqa: TRY004  # it was sent, and is no argument
    if "items" in value:
        items = [Told(item, error) if isinstance(item, dict) else item for item in value["items"]]
        value = {**value, "items": items}
    return Told(value, error)
