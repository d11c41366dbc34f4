"""What the objects read of a service, and how it is told: tables, files, texts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from trials.wire.files import ENV_ATTEMPT_DIR
from tuner_service.cli.context import resolve_experiment
from tuner_service.cli.output.progress import ENDED, progress_line
from tuner_service.cli.output.tables import number_text, parameters_begin
from tuner_service.cli.verbs.export import FORMATS, flat_trial, json_lines, write_export
from tuner_service.client import Client
from tuner_service.program.display import table_html
from tuner_service.program.errors import TunerError, UsageError
from tuner_service.program.typed import plain

if TYPE_CHECKING:
    import pandas as pd

View = dict[str, Any]
Fields = dict[str, type | tuple[type, ...]]
_WHOSE = "is it a service of Tuner Service, and of this version?"
TIMES = ("created_at", "started_at", "ended_at", "reported_at", "at")
_OPTIONAL = (dict, NoneType)
EXPERIMENT: Fields = {
    "id": str, "name": str, "status": str, "reason": str, "counts": dict, "budget": dict, "running_s": (int, float),
    "best": _OPTIONAL,
}  # fmt: skip
TRIAL: Fields = {"number": int, "status": str, "parameters": _OPTIONAL, "final": dict}
ASKED: Fields = {"number": int, "parameters": dict, "seed": int, "token": str}
LOG_RANGE = 256 << 10  # bytes of one answer, the most that is given
MAX_LOG_CHARACTERS = 64 << 20  # of one trial's output that `logs()` gives: its end


def given(**fields: Any) -> View:
    """Those that are not None."""
    named = {name: value for name, value in fields.items() if value is not None}
    made: View = plain(named)
    return made


def checked(view: View, fields: Fields) -> View:
    """``view``, which has at least these. TunerError for what no service answers."""
    if not isinstance(view, dict):
        raise TunerError(f"what was answered makes no sense: it is {type(view).__name__}, not an object; {_WHOSE}")
    odd = [name for name, kind in fields.items() if not isinstance(view.get(name), kind)]
    if odd:
        raise TunerError(f"what was answered makes no sense: {', '.join(odd)} should be in it, and is not; {_WHOSE}")
    return view


def new_key() -> str:
    return os.urandom(16).hex()


def require_no_trial() -> None:
    """A script that starts a search whenever it is imported would have each of its trials start one."""
    if ENV_ATTEMPT_DIR in os.environ:
        raise UsageError(
            "this process is a trial, which starts no experiments. Where the script that starts the search is the one "
            'that its trials run or import, the call belongs below `if __name__ == "__main__":`'
        )


# ── experiments ─────────────────────────────────────────────────────────────────────────────────
def found_experiment(client: Client, reference: str) -> View:
    return client.experiment(resolve_experiment(client, reference))


def has_ended(view: View) -> bool:
    return view["status"] in ENDED


def is_unfinished(view: View, *, include_stopped: bool) -> bool:
    """Whether it could go on and does not: by its own trouble, or also because somebody wanted it so."""
    on_purpose = view["status"] == "stopped" or (view["status"] == "paused" and view["reason"] == "requested")
    by_trouble = view["status"] == "failed" or (view["status"] == "paused" and not on_purpose)
    return by_trouble or (include_stopped and on_purpose)


def line_of(view: View) -> str:
    return progress_line(view, [])


def html_of(view: View) -> str:
    return table_html(view)


def quota_group(client: Client, name: str, given: Mapping[str, Any]) -> View:
    """It as it is made, or changed: what is not given stays as it is."""
    body = client.quota_group_body(name)
    for field, value in given.items():
        if value is not None:
            body[field] = None if value == "all" else plain(value, f"/{field}")
    return client.set_quota_group(name, body)


# ── trials ──────────────────────────────────────────────────────────────────────────────────────
def trial_line_of(view: View) -> str:
    return f"{view['status']}, value {number_text(view['value'])}, {parameters_begin(view['parameters'], 100)}"


def number(value: Any) -> float | None:
    """NaN and the infinities are texts in JSON."""
    return None if value is None else float(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    """Whose output: None leaves it to the service."""

    stderr: bool
    attempt: int | None
    node: int | None
    rank: int | None

    def query(self) -> View:
        named = {"attempt": self.attempt, "node": self.node, "rank": self.rank}
        stream = "stderr" if self.stderr else "stdout"
        return {"stream": stream} | {name: number for name, number in named.items() if number is not None}


def log_text(client: Client, experiment_id: str, trial: int, which: LogQuery) -> str:
    """The whole of it, or the end of one that is longer than MAX_LOG_CHARACTERS."""
    query = which.query() | {"offset": -MAX_LOG_CHARACTERS, "limit": LOG_RANGE}
    pieces = []
    while True:
        answer = client.log(experiment_id, trial, query)
        pieces.append(answer.data)
        end = int(answer.headers["log-end"])
        if not answer.data or end >= int(answer.headers["log-size"]):
            return b"".join(pieces).decode("utf-8", "replace")
        query |= {"offset": end, "attempt": int(answer.headers["log-attempt"])}


# ── tables and files ────────────────────────────────────────────────────────────────────────────
def exported_rows(client: Client, experiment_id: str, *, metrics: bool) -> list[View]:
    query = {"format": "jsonl"} | ({"metrics": "true"} if metrics else {})
    rows = json_lines(client.export(experiment_id, query))
    return list(rows) if metrics else [flat_trial(row) for row in rows]


def require_pandas() -> None:
    if find_spec("pandas") is None:
        raise TunerError("pandas is not installed: pip install pandas; export() writes a file without it")


def frame_of(rows: Sequence[Mapping[str, Any]], *, metrics: bool) -> pd.DataFrame:
    """Numbers as numbers, times as times; trials by their number."""
    import pandas as pd

    frame = pd.DataFrame.from_records(list(rows))
    for name in frame.columns:
        if name in TIMES:
            frame[name] = pd.to_datetime(frame[name], utc=True)
        elif name == "value" or name.startswith("final."):
            frame[name] = frame[name].astype("float64")  # "NaN" and "Infinity" among them
    return frame if metrics or "number" not in frame else frame.set_index("number")


def export(client: Client, experiment_id: str, target: Path, *, form: str | None, metrics: bool) -> None:
    chosen = form or FORMATS.get(target.suffix.lower())
    if chosen is None:
        raise UsageError(f"{target} does not say its format; name it {', '.join(FORMATS)}, or give output=")
    write_export(client, experiment_id, target, form=chosen, metrics=metrics)
