"""What agents and services of every version say to each other, for ever.

Two versions have nothing else in common. A service reads of any first message what a Greeting has, and answers another
version than its own with Leave. So the JSON of both is frozen (a test holds it): neither may lose or change a field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What every version's Hello says, whatever else stands in it."""

    kind: ClassVar[str] = "hello"
    version: int
    agent_id: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """To an agent of another version: its process ends, and what it supervises goes on.

    It touches no trial, supervisor or fork server: an agent of the service's ``version`` adopts them by their files.
    """

    kind: ClassVar[str] = "leave"
    version: int
    reason: str
