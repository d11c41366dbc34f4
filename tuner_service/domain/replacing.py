"""Rows that are replaced with every report: in a fifth of the time that ``dataclasses.replace`` takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["replaced"]

if TYPE_CHECKING:  # so that a field of a wrong name or type is found
    from dataclasses import replace as replaced
else:
    from collections.abc import Callable
    from dataclasses import fields
    from functools import cache
    from typing import Any, TypeVar

    T = TypeVar("T")

    def replaced(value: T, **changes: Any) -> T:
        """As ``dataclasses.replace``, of a class with slots that inherits none and computes nothing of its fields.

        TypeError for a class of another kind, AttributeError for a name that it does not have.
        """
        return _copier(type(value), tuple(changes))(value, **changes)

    @cache
    def _copier(cls: type[T], changed: tuple[str, ...]) -> Callable[..., T]:
        """Compiled, as ``dataclasses`` compiles constructors: rows have forty fields, of which a few change.

        A frozen class refuses assignments, and the way around it is a call for each field. A twin, which has the same
        slots and refuses nothing, is assigned to in a tenth of that; then the object becomes one of ``cls``.
        """
        if hasattr(cls, "__post_init__") or not hasattr(cls, "__slots__") or cls.__bases__ != (object,):
            raise TypeError(f"{cls.__name__} has no slots, inherits some, or computes some of its fields")
        names = [field.name for field in fields(cls)]
        for name in changed:
            if name not in names:
                raise AttributeError(f"{cls.__name__} has no field {name}")
        known = {"cls": cls, "twin": type(f"Open{cls.__name__}", (), {"__slots__": cls.__slots__})}
        lines = [f"def copied(value, *, {', '.join(changed)}):" if changed else "def copied(value):", " new = twin()"]
        lines += [f" new.{name} = {name if name in changed else f'value.{name}'}" for name in names]
        lines += [" new.__class__ = cls", " return new"]
        exec("\n".join(lines), known)  # noqa: S102  # of names of fields alone
        copied: Callable[..., T] = known["copied"]
        return copied
