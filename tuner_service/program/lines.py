"""The line to a service: found or started as the command line does it, found again where it has moved meanwhile."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar
from urllib.parse import urlsplit

from tuner_service.cli.listening import Heard
from tuner_service.client import Client
from tuner_service.client import UnreachableError as NoAnswerError
from tuner_service.config import Settings, resolve_settings
from tuner_service.local_service import (
    find_service,
    process_is_alive,
    process_mark,
    read_service_file,
    require_its_database,
    start_service,
)
from tuner_service.program.errors import UnreachableError, as_tuner_errors, sensible

if TYPE_CHECKING:
    from tuner_service.program.hearing import AsyncHeard

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Do = Callable[[Client], T]

DYING_S, LOOK_AGAIN_S = 5.0, 0.02  # for which a killed process may still be seen


def settings_for(
    home: str | Path | None, url: str | None, token: str | None, profile: str | None, ca: str | Path | None = None
) -> Settings:
    """As the command line resolves them; ``token`` takes the place of the variable TUNER_TOKEN."""
    flags = {
        "home": None if home is None else str(home),
        "url": url,
        "profile": profile,
        "ca": None if ca is None else str(ca),
    }
    environment = os.environ | ({} if token is None else {"TUNER_TOKEN": token})
    with as_tuner_errors():
        return resolve_settings(flags, environment=environment, folder=Path.cwd())


class Line:
    """One call at a time, from any thread. In a process that was forked it connects anew.

    A service of a home folder may end and come back at another address: each call looks there first.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = threading.RLock()
        self._client: Client | None = None
        self._address: tuple[str, int] | None = None  # of the home's service, and its process
        self._owner = os.getpid()

    @property
    def url(self) -> str:
        with self._lock:
            return self._client.url if self._client is not None else self.settings.url

    def connect(self, *, start: bool) -> None:
        """Find the service, or start it on the home folder where ``start`` says so and none runs."""
        with as_tuner_errors(), self._lock:
            client = self._find()
            if client is not None:
                if start:
                    require_its_database(self.settings)
                with sensible(client.url):
                    client.health()
            elif start:
                starting = start_service(self.settings)
                self._take(starting.wait())
                # It outlives this program, or ends before it: then somebody has to take note of that.
                threading.Thread(target=starting.process.wait, name="service", daemon=True).start()
            else:
                raise NoAnswerError(self._nobody())

    def call(self, do: Do[T]) -> T:
        """What ``do`` gives. Whatever breaks it off, an answer that was not read leaves nothing for the next call."""
        if os.getpid() != self._owner:
            self._lock, self._client, self._owner = threading.RLock(), None, os.getpid()
        with as_tuner_errors(), self._lock:
            client = self._find()
            if client is None:
                raise NoAnswerError(self._nobody())
            try:
                with sensible(client.url):
                    return do(client)
            except NoAnswerError as exc:
                self._drop()
                raise NoAnswerError(f"{exc}; {self._what_to_do()}") from exc
            except (KeyboardInterrupt, GeneratorExit):
                self._drop()
                raise

    def call_lasting(self, do: Do[T]) -> T:
        """As ``call``, of what may be repeated without harm: again where the service of a home was killed."""
        try:
            return self.call(do)
        except UnreachableError:
            if not self.was_killed():
                raise
        self.connect(start=True)
        return self.call(do)

    def was_killed(self) -> bool:
        """Whether the home names a service whose process is gone: one that is ended on purpose takes its name away.

        A process that is killed closes its connections before it is seen to be gone, milliseconds or, with much
        memory, longer: whoever was just refused one waits for that up to DYING_S.
        """
        deadline = time.monotonic() + DYING_S
        while not self.settings.url:
            described = read_service_file(self.settings)
            if described is None:
                return False
            mark = described.get("process")
            if not process_is_alive(described["pid"]) or (mark and mark != process_mark(described["pid"])):
                return True
            if time.monotonic() > deadline or accepts(described["url"]):
                return False
            time.sleep(LOOK_AGAIN_S)
        return False

    def another(self) -> Client:
        """A connection of the caller's own, to the service that is there now."""
        return self.call(lambda client: client.another())

    def close(self) -> None:
        with self._lock:
            self._drop()

    def __del__(self) -> None:
        """Objects that nobody closes leave no open connection behind, nor a warning of one."""
        if getattr(self, "_client", None) is not None:
            self._drop()

    def _find(self) -> Client | None:
        described = read_service_file(self.settings)
        address = None if described is None else (described["url"], described["pid"])
        if self._client is None or (address != self._address and not self.settings.url):
            self._drop()
            found = find_service(self.settings)
            if found is not None:
                self._take(found)
        return self._client

    def _take(self, client: Client) -> None:
        described = read_service_file(self.settings)
        self._client = client
        self._address = None if described is None else (described["url"], described["pid"])

    def _drop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _nobody(self) -> str:
        where = self.settings.url or f"the home folder {self.settings.home}"
        return f"no service runs at {where}; {self._what_to_do()}"

    def _what_to_do(self) -> str:
        if self.settings.url:
            return f"start the one of {self.settings.url}, or name another with url="
        return f"tuner_service.connect(home={str(self.settings.home)!r}) starts one, and what was running goes on"


def accepts(url: str) -> bool:
    """Whether somebody listens at ``url``: a service that is alive and merely slow needs no waiting for its end."""
    address = urlsplit(url)
    try:
        socket.create_connection((address.hostname or "", address.port or 80), timeout=1.0).close()
    except OSError:
        return False
    return True


class Work(Protocol[T_co]):
    """What takes long, and does so on connections of its own."""

    def run(self, line: Line) -> T_co: ...

    def give_up(self) -> None:
        """Soon. Any thread."""
        ...


class AsyncLine:
    """A line whose calls are awaited: they run in one thread of its own, so that they never wait for other work."""

    def __init__(self, line: Line) -> None:
        from concurrent.futures import ThreadPoolExecutor  # here, as asyncio below: programs that block need neither

        self.line = line
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tuner-service")

    async def run(self, do: Callable[[Line], T]) -> T:
        import asyncio

        return await asyncio.get_running_loop().run_in_executor(self._threads, do, self.line)

    @staticmethod
    async def beside(do: Callable[[], T]) -> T:
        """What reads files: not by the thread of whoever awaits other things as well."""
        import asyncio

        return await asyncio.to_thread(do)

    async def call(self, do: Do[T]) -> T:
        return await self.run(lambda line: line.call(do))

    async def apart(self, work: Work[T]) -> T:
        """``work`` beside other calls of this line; who cancels it gives it up."""
        import asyncio

        try:
            return await asyncio.to_thread(work.run, self.line)
        except asyncio.CancelledError:
            work.give_up()
            raise

    def listening(self, experiment_id: str) -> AsyncHeard:
        from tuner_service.program.hearing import AsyncHeard

        return AsyncHeard(self.line.another, experiment_id)

    async def pause(self, seconds: float) -> None:
        import asyncio

        await asyncio.sleep(seconds)

    async def close(self) -> None:
        await self.run(Line.close)
        self._threads.shutdown(wait=False)


class BlockingLine:
    """The same without awaiting."""

    def __init__(self, line: Line) -> None:
        self.line = line

    def run(self, do: Callable[[Line], T]) -> T:
        return do(self.line)

    @staticmethod
    def beside(do: Callable[[], T]) -> T:
        return do()

    def call(self, do: Do[T]) -> T:
        return self.line.call(do)

    def apart(self, work: Work[T]) -> T:
        return work.run(self.line)

    def listening(self, experiment_id: str) -> Heard:
        return Heard(self.line.another, experiment_id)

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        self.line.close()
