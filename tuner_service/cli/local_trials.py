"""The trials of this machine, seen and stopped without any service."""

from __future__ import annotations

from trials.agent.local import LocalAttempt, list_local, stop_local
from tuner_service.cli.context import split_trial
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.tables import Column, Row, print_rows
from tuner_service.config import Settings


def _status(attempt: Row) -> str:
    if attempt["waits"]:
        return "waits to start"
    return "running" if attempt["alive"] else f"ended ({attempt['cause'] or 'unknown'})"


LOCAL_COLUMNS = (
    Column(title="ATTEMPT", text=lambda a: a["id"]),
    Column(title="STATUS", text=_status),
    Column(title="PROCESS", text=lambda a: str(a["pid"] or "-"), right=True),
    Column(title="FOLDER", text=lambda a: a["folder"], width=1_000),
)


def print_local_trials(settings: Settings, *, output: str) -> int:
    print_rows([_row(attempt) for attempt in list_local(settings.home)], output=output, columns=LOCAL_COLUMNS)
    return ExitCode.OK


def stop_local_trials(settings: Settings, reference: str | None) -> int:
    """All of them, those of one experiment, or one trial; ids are not abbreviated here."""
    experiment, number = split_trial(reference) if reference else (None, None)
    wanted = [
        attempt
        for attempt in list_local(settings.home)
        if (attempt.alive or attempt.waits)
        and experiment in {None, attempt.key.experiment_id}
        and number in {None, attempt.key.number}
    ]
    if not wanted:
        what = f"of {reference} " if reference else ""
        raise CommandError(f"no trial {what}runs here under {settings.home}", ExitCode.NOT_FOUND)
    ended = stop_local(settings.home, {attempt.key for attempt in wanted})
    for attempt in ended:
        say(f"{attempt.key} {_outcome(attempt)}")
    return ExitCode.FAILURE if any(attempt.alive or attempt.waits for attempt in ended) else ExitCode.OK


def _outcome(attempt: LocalAttempt) -> str:
    if attempt.unwritten:
        return "has stopped, but how it ended could not be written down yet: if the disk is full, free some"
    if attempt.waits:
        return "still waits to start, and could not be stopped: if the disk is full, free some"
    return "still runs" if attempt.alive else "has stopped"


def _row(attempt: LocalAttempt) -> Row:
    key = attempt.key
    return {
        "id": str(key),
        "experiment": key.experiment_id,
        "number": key.number,
        "attempt": key.attempt,
        "alive": attempt.alive,
        "waits": attempt.waits,
        "pid": attempt.pid,
        "cause": attempt.cause,
        "folder": str(attempt.folder),
    }
