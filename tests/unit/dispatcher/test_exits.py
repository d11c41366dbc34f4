"""What an exit record means."""

from __future__ import annotations

import math
import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import an_attempt
from trials.wire.records import ExitCause, ExitRecord
from tuner_service.dispatcher.exits import (
    Died,
    Ended,
    Interrupted,
    Life,
    fingerprint,
    last_line,
    life_of,
    meaning,
    signal_name,
    told_error,
)
from tuner_service.domain.trial import TrialReason

TRACEBACK = """some output
Traceback (most recent call last):
  File "/home/one/attempts/8f3k2/1/work/train.py", line 12, in <module>
    main()
  File "/home/one/attempts/8f3k2/1/work/train.py", line 8, in main
    raise ValueError("no data at /home/one")
ValueError: no data at /home/one
"""


GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "train.py", line 6, in <module>
  |     raise ExceptionGroup('g',[ValueError('a')])
  | ExceptionGroup: g (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "train.py", line 3, in load
    | ValueError: no data
    +------------------------------------
"""
CUDA = """RuntimeError: CUDA error: device-side assert triggered
CUDA kernel errors might be asynchronously reported at some other API call.
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""


@pytest.mark.parametrize(
    ("tail", "told"),
    [
        ("", ""),
        ("killed by hand\n", "killed by hand"),
        (TRACEBACK, "ValueError: no data at /home/one"),
        (GROUP, "ExceptionGroup: g (1 sub-exception); ValueError: no data"),
        (
            "".join(f"[rank0]: {line}\n" for line in GROUP.splitlines()),
            "ExceptionGroup: g (1 sub-exception); ValueError: no data",
        ),
        (
            TRACEBACK.replace("ValueError: no data at /home/one\n", CUDA),
            f"RuntimeError: CUDA error: device-side assert triggered … {CUDA.splitlines()[-1]}",
        ),
        (TRACEBACK + "nothing is left to train on\n", "ValueError: no data at /home/one … nothing is left to train on"),
        ("Traceback (most recent call last):", "Traceback (most recent call last):"),
        ("  + Exception Group Traceback (most recent call last):\n  | ", "|"),
    ],
)
def test_the_error_that_is_told_is_that_of_the_traceback_with_the_last_line(tail: str, told: str) -> None:
    assert told_error(tail) == told


def test_exit_code_0_is_an_end() -> None:
    assert meaning(ExitRecord(cause=ExitCause.EXITED, code=0)) == Ended()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGQUIT])
def test_a_signal_that_others_send_is_an_interruption(number: signal.Signals) -> None:
    result = meaning(ExitRecord(cause=ExitCause.SIGNALED, signal=number))

    assert result == Interrupted(reason=TrialReason.PREEMPTED, message=f"ended by {number.name} from outside")


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE])
def test_a_signal_that_a_process_brings_on_itself_is_its_death(number: signal.Signals) -> None:
    result = meaning(ExitRecord(cause=ExitCause.SIGNALED, signal=number, tail="free(): invalid pointer\n"))

    assert isinstance(result, Died)
    assert (result.reason, result.message) == (
        TrialReason.SIGNAL,
        f"ended by {number.name}: free(): invalid pointer",
    )


@pytest.mark.parametrize("cause", ExitCause)
def test_every_cause_has_a_meaning(cause: ExitCause) -> None:
    assert isinstance(meaning(ExitRecord(cause=cause, code=1, signal=11)), Died | Interrupted)


@pytest.mark.parametrize("cause", [ExitCause.SUPERVISOR_LOST, ExitCause.HOST_REBOOTED, ExitCause.ATTEMPT_LOST])
def test_an_end_that_nobody_saw_is_an_interruption(cause: ExitCause) -> None:
    message = f"{cause.value.replace('_', ' ')}; nobody saw how it ended"

    assert meaning(ExitRecord(cause=cause)) == Interrupted(reason=TrialReason.ATTEMPT_LOST, message=message)


def test_why_an_agent_has_lost_an_attempt_is_told_and_what_a_script_said_last_is_no_reason() -> None:
    def message(cause: ExitCause) -> str:
        found = meaning(ExitRecord(cause=cause, tail="epoch 3\nits folder is gone\n"))
        assert isinstance(found, Interrupted)
        return found.message

    assert message(ExitCause.ATTEMPT_LOST) == "its folder is gone"
    assert message(ExitCause.SUPERVISOR_LOST) == "supervisor lost; nobody saw how it ended"
    assert message(ExitCause.HOST_REBOOTED) == "host rebooted; nobody saw how it ended"


def test_a_death_without_output_is_named_by_its_code() -> None:
    result = meaning(ExitRecord(cause=ExitCause.EXITED, code=3))

    assert isinstance(result, Died)
    assert result.message == "exit code 3"


@pytest.mark.parametrize(
    ("record", "reason", "message"),
    [
        (
            ExitRecord(cause=ExitCause.OUT_OF_MEMORY, signal=9),
            TrialReason.OUT_OF_MEMORY,
            "killed by the kernel: out of memory",
        ),
        (
            ExitRecord(cause=ExitCause.OUT_OF_MEMORY, signal=9, memory_limit_bytes=800 << 20),
            TrialReason.OUT_OF_MEMORY,
            "used more memory than its 800 MiB",
        ),
        (
            ExitRecord(cause=ExitCause.OUT_OF_TIME, code=0),
            TrialReason.MAX_DURATION,
            "ran longer than trial.max_duration",
        ),
    ],
)
def test_a_limit_that_was_passed_is_a_death_that_names_the_limit(
    record: ExitRecord, reason: TrialReason, message: str
) -> None:
    result = meaning(record)

    assert isinstance(result, Died)
    assert (result.reason, result.message) == (reason, message)


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (None, "signal None"), (4242, "signal 4242")])
def test_signals_are_called_by_name(number: int | None, name: str) -> None:
    assert signal_name(number) == name


@pytest.mark.parametrize(("tail", "line"), [("", ""), ("\n \n", ""), ("a\n b \n\n", "b")])
def test_the_last_line_is_the_last_with_text(tail: str, line: str) -> None:
    assert last_line(tail) == line


# ── fingerprints ────────────────────────────────────────────────────────────────────────────────
def test_folders_and_values_do_not_make_errors_differ() -> None:
    other = TRACEBACK.replace("/home/one", "/srv/two").replace("/1/work", "/2/work").replace("some output", "epoch 3")

    assert fingerprint("exit code 1", TRACEBACK) == fingerprint("exit code 1", other)


@pytest.mark.parametrize(
    "other",
    [
        TRACEBACK.replace("line 8", "line 9"),
        TRACEBACK.replace("ValueError:", "KeyError:"),
        TRACEBACK.replace("train.py", "model.py"),
    ],
)
def test_another_place_or_type_of_error_does(other: str) -> None:
    assert fingerprint("exit code 1", TRACEBACK) != fingerprint("exit code 1", other)


def test_the_exit_code_does() -> None:
    assert fingerprint("exit code 1", "") != fingerprint("exit code 2", "")


def test_output_without_a_traceback_does_not() -> None:
    assert fingerprint("exit code 1", "epoch 1") == fingerprint("exit code 1", "epoch 2")


# ── when it ran ─────────────────────────────────────────────────────────────────────────────────
def life(*, at: float = 1_000.0, started_at: float | None = 100.0, **record: Any) -> Life:
    attempt = an_attempt(created_at=90.0, started_at=started_at)
    return life_of(attempt, ExitRecord(cause=ExitCause.EXITED, code=0, **record), at=at)


def test_an_attempt_that_ended_long_ago_ended_then() -> None:
    assert life(started_at=100.5, ended_at=160.0, ran_s=60.25) == Life(started_at=100.5, ended_at=160.0, ran_s=60.25)


def test_one_that_began_and_ended_while_nobody_was_told_began_when_its_parent_says() -> None:
    begun = life_of(
        an_attempt(created_at=90.0),
        ExitRecord(cause=ExitCause.EXITED, code=0, started_at=120.0, ended_at=150.0),
        at=1_000.0,
    )
    assert begun == Life(started_at=120.0, ended_at=150.0, ran_s=30.0)


def test_an_end_is_never_before_the_beginning_however_the_clocks_stand() -> None:
    assert life(ended_at=7.0, ran_s=60.0) == Life(started_at=100.0, ended_at=160.0, ran_s=60.0)
    assert life(ended_at=100.0, ran_s=60.0) == Life(started_at=100.0, ended_at=100.0, ran_s=60.0)
    assert life(ended_at=7.0, ran_s=9_999.0) == Life(started_at=100.0, ended_at=1_000.0, ran_s=9_999.0)
    assert life(at=50.0, ended_at=7.0, ran_s=60.0) == Life(started_at=100.0, ended_at=100.0, ran_s=60.0)
    assert life(ended_at=9_999.0, ran_s=60.0) == Life(started_at=100.0, ended_at=1_000.0, ran_s=60.0)
    assert life(started_at=None, ended_at=7.0) == Life(started_at=None, ended_at=90.0, ran_s=0.0)


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -1.0])
def test_what_is_no_time_is_passed_over(nonsense: float) -> None:
    assert life(ended_at=nonsense, ran_s=nonsense) == Life(started_at=100.0, ended_at=1_000.0, ran_s=900.0)


@given(tail=st.lists(st.sampled_from([*GROUP.splitlines(True), *TRACEBACK.splitlines(True), *"\n |+\x1c\r", "  | "])))
def test_of_any_end_something_is_told_or_it_was_empty(tail: list[str]) -> None:
    text = "".join(tail)

    assert bool(told_error(text)) == bool(text.strip())
