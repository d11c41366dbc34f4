"""Dataclasses as rows and back, field by field and exactly.

A row is a dict of column values. What a column holds follows from the field's type: numbers and short names as they
are, structured values as JSON text.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields
from enum import Enum
from functools import lru_cache, partial
from itertools import compress
from math import isfinite
from operator import attrgetter, is_not
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

from trials.wire.attempt import AttemptKey
from trials.wire.plain import from_plain, to_plain
from tuner_service.dispatcher.changes import (
    JournalLine,
    MetricRow,
    SearchSpaceRevision,
    StoredDecision,
    StoredIdempotencyKey,
    StoredSnapshot,
)
from tuner_service.dispatcher.items import EncodedJson, Queue
from tuner_service.domain.errors import RowsDamagedError
from tuner_service.domain.experiment import Experiment, ExperimentSpec
from tuner_service.domain.resources import QuotaGroup
from tuner_service.domain.rungs import Rungs
from tuner_service.domain.trial import Attempt, Checkpoint, Trial
from tuner_service.ports import StoredSession, StoredToken, TrialMetric

T = TypeVar("T")
Row = dict[str, Any]

QUEUE_BITS = {Queue.TUNER: 1, Queue.ASSESSOR: 2}
QUEUES_OF_BITS = {
    bits: tuple(queue for queue, bit in QUEUE_BITS.items() if bits & bit)
    for bits in range(sum(QUEUE_BITS.values()) + 1)
}
# SQLite turns a bound NaN into NULL; this text it keeps, and PostgreSQL reads it as the number.
_NAN = "NaN"
# Objects that JSON gives back as they were, without a look at every value: a list of trials holds thousands.
_AS_JSON_GIVES_THEM = (dict[str, Any], dict[str, float])
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)  # what damaged values raise
DAMAGE_SHOWN = 200  # characters of what is wrong with a row
SPECS_REMEMBERED = 64  # decoded ones
_ESCAPED = "\x1b"  # begins a text that is stored as JSON, because a database could not hold it as it is

to_json = json.JSONEncoder(separators=(",", ":")).encode  # ASCII only, so that no text is refused by a database


def float_in(value: float | None) -> float | str | None:
    return _NAN if value != value else value  # noqa: PLR0124  # NaN is the one value that differs from itself


def float_out(value: float | str | None) -> float | None:
    return None if value is None else float(value)


def text_in(value: str) -> str:
    """``value``, or an escaped form of one that holds NUL or half a character."""
    if value.isprintable():  # neither of them is printable
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return _ESCAPED + to_json(value)
    return _ESCAPED + to_json(value) if "\0" in value or value[0] == _ESCAPED else value


def text_out(value: str) -> str:
    return str(json.loads(value[1:])) if value[:1] == _ESCAPED else value


class FieldMap(Generic[T]):
    """How the fields of ``cls`` stand in the columns of their names; those in ``elsewhere`` have none."""

    def __init__(self, cls: type[T], *, elsewhere: tuple[str, ...] = ()) -> None:
        hints = get_type_hints(cls)
        self._cls = cls
        self._codecs = [(f.name, *_codec(hints[f.name])) for f in fields(cls) if f.name not in elsewhere]  # type: ignore[arg-type]  # only dataclasses are given
        self._values = attrgetter(*(name for name, _, _ in self._codecs))  # of all fields, as a tuple

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(name for name, _, _ in self._codecs)

    @property
    def decoders(self) -> dict[str, Callable[[Any], Any]]:
        """By column, what makes its value into that of the field; raises for one that is none."""
        return {name: decode for name, _, decode in self._codecs}

    def encoded(self, name: str, value: Any) -> Any:
        """What the column of that name holds where the field is ``value``."""
        (encode,) = (encode for known, encode, _ in self._codecs if known == name)
        return encode(value)

    def row(self, value: T, **extra: Any) -> Row:
        row = {name: encode(getattr(value, name)) for name, encode, _ in self._codecs}
        return row | extra

    def changed(self, value: T, before: T) -> Row:
        """The columns that hold something else than those of ``before``.

        A row is replaced with every report, and a few of its forty fields with it. A field that is the same object was
        not changed, and is passed over without a step of the interpreter; one that is equal may be written otherwise
        all the same, as -0.0 is.
        """
        found: Row = {}
        new, old = self._values(value), self._values(before)
        fresh = compress(zip(self._codecs, new, old, strict=True), map(is_not, new, old))
        for (name, encode, _), after, former in fresh:
            column = encode(after)
            if after != former or repr(column) != repr(encode(former)):
                found[name] = column
        return found

    def value(self, row: Mapping[Any, Any], **extra: Any) -> T:
        """RowsDamagedError, naming the row and its column, where it was damaged."""
        try:
            return self._cls(**{name: decode(row[name]) for name, _, decode in self._codecs}, **extra)
        except UNREADABLE as exc:
            raise RowsDamagedError(self._damage(row)) from exc

    def readable(self, row: Mapping[Any, Any]) -> dict[str, Any]:
        """The fields of it that can be read."""
        found = {}
        for name, _, decode in self._codecs:
            with suppress(*UNREADABLE):
                found[name] = decode(row[name])
        return found

    def _damage(self, row: Mapping[Any, Any]) -> str:
        key = "/".join(str(row[name]) for name in ("experiment_id", "id", "number", "line") if name in row)
        for name, _, decode in self._codecs:
            try:
                decode(row[name])
            except UNREADABLE as exc:
                why = f"{type(exc).__name__}: {exc}"[:DAMAGE_SHOWN]
                return f"a stored {self._cls.__name__} ({key}) is damaged in column {name}: {why}; run `tuner doctor`"
        return f"a stored {self._cls.__name__} ({key}) is damaged; run `tuner doctor`"


_Codec = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def _same(value: Any) -> Any:
    return value


def _codec(hint: Any) -> _Codec:
    inner, optional = _without_none(hint)
    if inner is float:
        return float_in, float_out
    if inner is str:
        codec: _Codec = (text_in, text_out)
    elif inner is bool:
        codec = (_same, bool)
    elif inner is int:
        codec = (_same, int)
    elif isinstance(inner, type) and issubclass(inner, Enum):
        codec = (_member_value, inner)
    elif inner == dict[str, float]:
        codec = (_metrics_in, partial(_from_json, inner))
    else:
        codec = (_plain_json, partial(_from_json, inner))
    return (_or_none(codec[0]), _or_none(codec[1])) if optional else codec


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) in (Union, types.UnionType):
        (inner,) = (a for a in get_args(hint) if a is not types.NoneType)
        return inner, True
    return hint, False


def _or_none(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else function(value)


def _member_value(value: Enum) -> Any:
    return value.value


_NUMBERS = frozenset({float})
_WHOLE_NUMBERS = frozenset({int})  # and not bool, which JSON writes in another way
_EMPTY: dict[type[Any], str] = {dict: "{}", tuple: "[]"}  # what most of these columns hold


def _plain_json(value: Any) -> str:
    if not value and type(value) in _EMPTY:
        return _EMPTY[type(value)]
    return to_json(to_plain(value))


def _from_json(hint: Any, value: str) -> Any:
    if hint in _AS_JSON_GIVES_THEM:
        found = json.loads(value)
        if type(found) is not dict:
            raise ValueError(f"expected an object, got {type(found).__name__}")
        return found
    return from_plain(hint, json.loads(value), where="stored value")


def _values_in(values: dict[str, float]) -> str:
    """As ``to_json`` writes them, in half its time."""
    if not isfinite(sum(values.values())):
        return to_json(values)
    return "{" + ",".join([f"{_name_in(name)}{value!r}" for name, value in values.items()]) + "}"


def _metrics_in(values: dict[str, float]) -> str:
    """As ``_plain_json`` writes them. What a damaged row gave instead of numbers, is written as it was found."""
    return _values_in(values) if _NUMBERS.issuperset(map(type, values.values())) else _plain_json(values)


@lru_cache(maxsize=4_096)
def _name_in(name: str) -> str:
    return to_json(name) + ":"


EXPERIMENTS = FieldMap(Experiment, elsewhere=("spec", "tuner_cursor", "assessor_cursor"))
TRIALS = FieldMap(Trial, elsewhere=("rungs",))
RUNGS = FieldMap(Rungs)  # in columns of the trials table
ATTEMPTS = FieldMap(Attempt, elsewhere=("key",))
JOURNAL = FieldMap(JournalLine, elsewhere=("queues",))
CHECKPOINTS = FieldMap(Checkpoint)
SNAPSHOTS = FieldMap(StoredSnapshot)
REVISIONS = FieldMap(SearchSpaceRevision)
DECISIONS = FieldMap(StoredDecision)
KEYS = FieldMap(StoredIdempotencyKey)
QUOTA_GROUPS = FieldMap(QuotaGroup)
SESSIONS = FieldMap(StoredSession)
TOKENS = FieldMap(StoredToken)

METRIC_COLUMNS = (
    "experiment_id", "number", "attempt", "sequence", "line", "step", "values", "first", "objective", "at",
)  # fmt: skip


def spec_in(spec: ExperimentSpec) -> str:
    return _plain_json(spec)


def experiment_in(experiment: Experiment, before: Experiment | None = None) -> Row:
    """Its columns; where it was written as ``before``, those that hold something else now.

    The spec, which may have many pages, is looked at where it is another object.
    """
    if before is None:
        return EXPERIMENTS.row(experiment, spec=spec_in(experiment.spec))
    changed = EXPERIMENTS.changed(experiment, before)
    return changed if experiment.spec is before.spec else changed | {"spec": spec_in(experiment.spec)}


@lru_cache(maxsize=SPECS_REMEMBERED)
def spec_out(text: str) -> ExperimentSpec:
    """Never changed by anybody, and asked for with every look at its experiment."""
    spec: ExperimentSpec = _from_json(ExperimentSpec, text)
    return spec


def experiment_out(row: Mapping[Any, Any], cursors: Mapping[str, int]) -> Experiment:
    """``cursors`` maps a queue to the line up to which it has answered."""
    try:
        spec = spec_out(row["spec"])
    except UNREADABLE as exc:
        why = f"{type(exc).__name__}: {exc}"[:DAMAGE_SHOWN]
        what = f"a stored Experiment ({row['id']}) is damaged in column spec: {why}; run `tuner doctor`"
        raise RowsDamagedError(what) from exc
    return EXPERIMENTS.value(
        row,
        spec=spec,
        tuner_cursor=cursors.get(Queue.TUNER, 0),
        assessor_cursor=cursors.get(Queue.ASSESSOR, 0),
    )


def cursors_in(experiment: Experiment) -> list[Row]:
    lines = {Queue.TUNER: experiment.tuner_cursor, Queue.ASSESSOR: experiment.assessor_cursor}
    return [{"experiment_id": experiment.id, "queue": queue.value, "line": line} for queue, line in lines.items()]


def trial_in(trial: Trial, before: Trial | None = None) -> Row:
    """Its columns; where it was written as ``before``, those that hold something else now."""
    if before is None:
        return TRIALS.row(trial, **RUNGS.row(trial.rungs))
    changed = TRIALS.changed(trial, before)
    return changed if trial.rungs is before.rungs else changed | RUNGS.changed(trial.rungs, before.rungs)


def trial_out(row: Mapping[Any, Any]) -> Trial:
    return TRIALS.value(row, rungs=RUNGS.value(row))


def attempt_in(attempt: Attempt, before: Attempt | None = None) -> Row:
    """Likewise, of the same attempt."""
    if before is not None:
        return ATTEMPTS.changed(attempt, before)
    key = attempt.key
    return ATTEMPTS.row(attempt, experiment_id=key.experiment_id, number=key.number, attempt=key.attempt)


def attempt_out(row: Mapping[Any, Any]) -> Attempt:
    key = AttemptKey(experiment_id=row["experiment_id"], number=row["number"], attempt=row["attempt"])
    return ATTEMPTS.value(row, key=key)


def line_in(line: JournalLine) -> Row:
    """Written out, because each report of a trial that reports seldom has a line of its own."""
    return {
        "experiment_id": text_in(line.experiment_id),
        "line": line.line,
        "at": float_in(line.at),
        "kind": text_in(line.kind),
        "payload": _payload_in(line.payload),
        "queues": sum({QUEUE_BITS[queue] for queue in line.queues}),
    }


def _payload_in(payload: dict[str, Any]) -> str:
    """As ``_plain_json`` writes it, in a third of its time where it holds whole numbers alone, as that of reports.

    What is encoded already is written as it is.
    """
    kinds = set(map(type, payload.values()))
    if _WHOLE_NUMBERS.issuperset(kinds):
        return "{" + ",".join([f"{_name_in(name)}{value}" for name, value in payload.items()]) + "}"
    if EncodedJson not in kinds:
        return _plain_json(payload)
    texts = {name: value if type(value) is EncodedJson else _plain_json(value) for name, value in payload.items()}
    return "{" + ",".join([f"{_name_in(name)}{text}" for name, text in texts.items()]) + "}"


def line_out(row: Mapping[Any, Any]) -> JournalLine:
    return JOURNAL.value(row, queues=QUEUES_OF_BITS[row["queues"]])


def metric_in(metric: MetricRow) -> tuple[Any, ...]:
    """In the order of METRIC_COLUMNS. Written out, because a step may hold thousands."""
    experiment_id, number, attempt, sequence, line, step, values, first, objective, at = metric
    return (
        experiment_id, number, attempt, sequence, line, step,
        _values_in(values), first, float_in(objective), float_in(at),
    )  # fmt: skip


def metric_out(row: Mapping[Any, Any]) -> TrialMetric:
    return TrialMetric(
        attempt=row["attempt"],
        sequence=row["sequence"],
        step=row["step"],
        values=json.loads(row["values"]),
        first=bool(row["first"]),
        at=float(row["at"]),
    )
