"""What people may call things; each check says what a name should be."""

from __future__ import annotations

from typing import Any

from trials.wire.texts import line_fault
from tuner_service.domain.errors import Fault, InputError
from tuner_service.domain.search_space import SearchSpace, parse_search_space

MAX_TAG = 100  # characters


def checked_name(value: str | None) -> str | None:
    """Of an experiment or a project."""
    if value is None:
        return None
    if not value.strip() or not value.isprintable() or "/" in value or value.startswith("@"):
        raise ValueError("should be printable text without a slash that does not begin with @")
    return value


def checked_tags(tags: list[str] | None) -> list[str] | None:
    for tag in tags or ():
        if not tag.strip() or not tag.isprintable() or len(tag) > MAX_TAG:
            raise ValueError(f"{tag!r:.40} should be printable text of at most {MAX_TAG} characters")
    if tags is not None and len(set(tags)) != len(tags):
        raise ValueError("names a tag twice")
    return tags


def checked_metric(name: str) -> str:
    """What a script reports has no such name: as an objective it would never be seen."""
    fault = line_fault(name)
    if fault:
        raise ValueError(f"{name!r:.40} {fault}; the name of a metric is one line of text")
    return name


def named_space(raw: Any) -> SearchSpace:
    """The search space that a person wrote; InputError with every fault. Its parameters have names of one line.

    Spaces that there are already, and those that grow by what scripts ask for, are not asked for that.
    """
    space = parse_search_space(raw)
    faults = [
        Fault(
            pointer="/" + path, message=f"{line_fault(path)} in its name; the name of a parameter is one line of text"
        )
        for path in space.paths
        if line_fault(path)
    ]
    if faults:
        raise InputError(faults)
    return space
