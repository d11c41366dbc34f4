"""Running the commands by which a person is told: named in the home's own file, and never waited for by the service.

``HOME/notify.toml`` belongs to the owner of the home, because what it names runs as the service's user. An experiment
names commands of it and no others. Each is given a text on its standard input, runs for COMMAND_TIMEOUT_S at most, and
ends with the service. What was told is marked in ``HOME/notified.json`` after the command has ended: a service that is
killed in between tells it again.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trials.files import write_atomically
from tuner_service.domain.errors import Fault, InputError
from tuner_service.domain.experiment import Experiment
from tuner_service.service.notices import Event, Mark, Notice, mark_of, notices_of

FILE_COMMANDS = "notify.toml"
FILE_MARKS = "notified.json"
COMMAND_TIMEOUT_S = 30.0  # then it and what it started are killed
AT_ONCE = 16  # commands: so many would have to hang before anything else waits, for COMMAND_TIMEOUT_S
WAITING_LIMIT = 1_000  # notices; further ones are left out with a line in the log, and told after the next start
OUTPUT_BYTES = 2_000  # of what it printed, for the log where it fails
_READ_BYTES = 64 << 10
_POLL_S = 0.02
# In a process of its own, so that what it starts ends with the service, also where that is killed.
_CHILD = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyFile:
    """``commands`` by name; ``always``: those of every experiment, by event."""

    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    always: Mapping[Event, tuple[str, ...]] = field(default_factory=dict)


def read_notify_file(home: Path) -> NotifyFile:
    """Empty where there is none. InputError where it is not what the owner of the home could have meant."""
    file = home / FILE_COMMANDS
    try:
        with file.open("rb") as stream:
            status, data = os.fstat(stream.fileno()), stream.read()
    except FileNotFoundError:
        return NotifyFile()
    except OSError as exc:
        raise _fault(file, "", f"cannot be read: {exc.strerror}") from exc
    if status.st_uid not in {os.geteuid(), 0} or status.st_mode & 0o022:
        raise _fault(file, "", "must belong to the user of the service, and be writable by nobody else")
    import tomllib

    try:
        found = tomllib.loads(data.decode("utf-8-sig"))  # some editors begin a file with the mark
    except (ValueError, RecursionError) as exc:  # also of what Python takes no number or no nesting of
        raise _fault(file, "", f"is not TOML: {exc}") from exc
    commands = found.pop("commands", {})
    always = {Event(name): found.pop(name) for name in Event if name in found}
    if found:
        known = ", ".join(["commands", *Event])
        raise _fault(file, f"/{next(iter(found))}", f"is not known here; known: {known}")
    if not isinstance(commands, dict) or not all(_is_words(words) and words for words in commands.values()):
        raise _fault(file, "/commands", 'each is a list of words, such as mail = ["mail", "-s", "tuner", "me"]')
    for event, names in always.items():
        if not _is_words(names) or not set(names) <= set(commands):
            known = ", ".join(commands) or "none"
            raise _fault(file, f"/{event.value}", f"is a list of names of commands; known: {known}")
    return NotifyFile(
        commands={name: tuple(words) for name, words in commands.items()},
        always={event: tuple(names) for event, names in always.items()},
    )


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) and word and "\0" not in word for word in value)


def _fault(file: Path, pointer: str, message: str) -> InputError:
    return InputError([Fault(pointer=pointer, message=f"{file} {message}")])


class Notifier:
    """``look`` may be called from any thread and never waits; everything else happens on threads of its own."""

    def __init__(self, home: Path, wanted: NotifyFile) -> None:
        self._home = home
        self._wanted = wanted
        self._lock = threading.Lock()
        self._saving = threading.Lock()
        self._seen: dict[str, Mark] = {}  # what waits to be told included
        self._told: dict[str, Mark] = {}
        self._waiting: dict[str, deque[Notice]] = {}  # by experiment, in order; there while one of its is worked on
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closing = False
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="notify") if wanted.commands else None

    def begin(self, read: Callable[[], Iterable[Experiment]]) -> None:
        """Tell what was missed while no service ran. Where nothing was ever told, all that is there counts as told."""
        if self._pool is None:
            (self._home / FILE_MARKS).unlink(missing_ok=True)
            return
        marks = _read_marks(self._home / FILE_MARKS)
        experiments = list(read())
        self._told = {e.id: marks.get(e.id, Mark()) if marks is not None else mark_of(e) for e in experiments}
        with self._lock:
            self._seen = dict(self._told)
        self._save()
        self.look(experiments)

    def look(self, experiments: Iterable[Experiment]) -> None:
        """Their rows are on the disk."""
        if self._pool is None:
            return
        for experiment in experiments:
            with self._lock:
                if self._closing:
                    return
                before = self._seen.get(experiment.id, Mark())
                found, after = notices_of(before, experiment)
                wanted = [notice for notice in found if self._commands_of(notice)]
                if len(wanted) + sum(map(len, self._waiting.values())) > WAITING_LIMIT:
                    logger.error("notice_left_out", extra={"experiment": experiment.id})
                    continue
                self._seen[experiment.id] = after
                if found and not wanted and experiment.id not in self._waiting:
                    self._told[experiment.id] = after
                    self._pool.submit(self._save)
                if wanted and experiment.id in self._waiting:
                    self._waiting[experiment.id] += wanted
                elif wanted:
                    self._waiting[experiment.id] = deque(wanted)
                    self._pool.submit(self._tell_all, experiment.id)

    def close(self) -> None:
        """What is under way is ended, and told again by the next service."""
        with self._lock:
            self._closing = True
            running = list(self._running)
        for process in running:
            _kill(process)
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _commands_of(self, notice: Notice) -> list[str]:
        names = (*self._wanted.always.get(notice.event, ()), *notice.names)
        return list(dict.fromkeys(name for name in names if name in self._wanted.commands))

    # ── on a thread of the pool ─────────────────────────────────────────────────────────────────
    def _tell_all(self, experiment_id: str) -> None:
        """One after the other: of an experiment the first comes first."""
        while True:
            with self._lock:
                waiting = self._waiting[experiment_id]
                if not waiting or self._closing:
                    del self._waiting[experiment_id]
                    return
                notice = waiting[0]
            for name in self._commands_of(notice):
                self._run(name, notice)
            with self._lock:
                if self._closing:
                    continue
                waiting.popleft()
                self._told[experiment_id] = notice.mark
            self._save()

    def _run(self, name: str, notice: Notice) -> None:
        fields = {"command": name, "event_name": notice.event.value, "experiment": notice.experiment_id}
        try:
            process = self._start(self._wanted.commands[name], notice)
        except OSError as exc:
            logger.error("notice_command_not_started", extra={**fields, "error": str(exc)})
            return
        if process is None:
            return
        try:
            printed = _follow(process, notice.text.encode(errors="replace"))
        finally:
            with self._lock:
                code = process.wait()  # it was killed if it had not ended
                self._running.discard(process)
        if code and not self._closing:
            logger.error("notice_command_failed", extra={**fields, "code": code, "output": printed})

    def _start(self, words: Sequence[str], notice: Notice) -> subprocess.Popen[bytes] | None:
        environment = os.environ | {"TUNER_EVENT": notice.event.value, "TUNER_EXPERIMENT": notice.experiment_id}
        with self._lock:
            if self._closing:
                return None
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _CHILD, *words],
                cwd=self._home,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._running.add(process)
        return process

    def _save(self) -> None:
        file = self._home / FILE_MARKS
        with self._saving:
            with self._lock:
                marks = {name: asdict(mark) for name, mark in self._told.items()}
            try:
                # What a power loss takes is told again.
                write_atomically(str(file), json.dumps(marks).encode())
            except OSError as exc:
                logger.error("notice_not_marked", extra={"error": str(exc)})


def _follow(process: subprocess.Popen[bytes], text: bytes) -> str:
    """Give it the text, and read what it prints until it ends or its time is up. The end of that."""
    import select

    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:
        raise RuntimeError("it was started without its streams")
    deadline, printed = time.monotonic() + COMMAND_TIMEOUT_S, b""
    # Of a user with very many pipes, the kernel gives each a page: the text is more, and the command may not read it.
    os.set_blocking(stdin.fileno(), False)
    with stdout, stdin:
        poll = select.poll()  # which takes any descriptor; select() takes none above 1023
        giving, reading = stdin.fileno(), stdout.fileno()
        poll.register(giving, select.POLLOUT)
        poll.register(reading, select.POLLIN)
        are_open = {giving, reading}
        while are_open and (left := deadline - time.monotonic()) > 0:
            for descriptor, _ in poll.poll(left * 1000):
                if descriptor == giving:
                    text = _given(giving, text)
                    is_done = not text
                else:
                    data = os.read(reading, _READ_BYTES)
                    printed, is_done = (printed + data)[-OUTPUT_BYTES:], not data
                if is_done:
                    poll.unregister(descriptor)
                    are_open.discard(descriptor)
                    (stdin if descriptor == giving else stdout).close()
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > deadline:
            printed += f"\n[killed after {COMMAND_TIMEOUT_S:g} s]".encode()
            break
        time.sleep(_POLL_S)
    _kill(process)  # before it is reaped: so long its number is nobody else's
    return printed.decode(errors="replace").strip()


def _given(descriptor: int, text: bytes) -> bytes:
    """What is left of it; nothing where nobody reads any more."""
    try:
        return text[os.write(descriptor, text) :]
    except BlockingIOError:
        return text
    except BrokenPipeError:
        return b""


def _kill(process: subprocess.Popen[bytes]) -> None:
    """It and whatever it has started in its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _read_marks(file: Path) -> dict[str, Mark] | None:
    """None where nothing was ever marked, or nothing that can be read."""
    try:
        return {name: Mark(**fields) for name, fields in json.loads(file.read_text(encoding="utf-8")).items()}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, AttributeError) as exc:
        logger.error("notice_marks_unreadable", extra={"error": str(exc)})
        return None
