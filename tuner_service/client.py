"""Talks to a service: finds the one of a home folder, starts it where asked, and calls it. Standard library only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

from tuner_service.config import Settings

if TYPE_CHECKING:
    from http.client import HTTPConnection

START_TIMEOUT_S = 20.0  # of a service that was started; beyond: UnreachableError with the end of its log
START_POLL_S = 0.01
HEALTH_TIMEOUT_S = 2.0
REQUEST_TIMEOUT_S = 60.0
WAIT_MARGIN_S = 10.0  # on top of how long the service was asked to wait
LOG_TAIL_BYTES = 2_000
PAGE_SIZE = 1_000
TABLE_PAGE_SIZE = 2_000
STREAM_BYTES = 1 << 16


class ClientError(Exception):
    """Its text says what went wrong and what to do."""


class UnreachableError(ClientError):
    """No service answers."""


@dataclass
class ProblemError(ClientError):
    """The service refused; ``status`` is HTTP's, ``problem`` the object it sent."""

    status: int
    problem: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [str(self.problem.get("detail") or f"the service answered {self.status}")]
        lines += [f"  {e.get('pointer') or '/'}: {e.get('detail')}" for e in self.problem.get("errors", ())]
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    data: bytes

    def json(self) -> Any:
        return json.loads(self.data) if self.data else None


class Client:
    """One connection, kept open between calls. Not thread-safe."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        self._token = token
        self._connection: HTTPConnection | None = None
        self._asked: str | None = None  # what was sent, whose answer is read by the call of the same

    def close(self) -> None:
        self._asked = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ── calls ───────────────────────────────────────────────────────────────────────────────────
    def create(self, body: Mapping[str, Any], *, key: str | None = None, dry_run: bool = False) -> Any:
        """With ``key``, repeating the call cannot create a second experiment."""
        headers = {"Idempotency-Key": key} if key else {}
        query = {"dry_run": "true"} if dry_run else {}
        return self.call("POST", "/api/v1/experiments", body=body, query=query, headers=headers).json()

    def experiments(self) -> list[dict[str, Any]]:
        """Newest first."""
        return list(self._pages("/api/v1/experiments", {}))

    def experiment(self, experiment_id: str, *, wait_s: float | None = None) -> dict[str, Any]:
        """With ``wait_s``: once it has ended, or after so many seconds."""
        return self._read(_experiment_path(experiment_id), wait_s)

    def pause(self, experiment_id: str) -> dict[str, Any]:
        return self._verb(_experiment_path(experiment_id) + "/pause", {})

    def resume(self, experiment_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._verb(_experiment_path(experiment_id) + "/resume", body)

    def stop(self, experiment_id: str) -> dict[str, Any]:
        return self._verb(_experiment_path(experiment_id) + "/stop", {})

    def delete(self, experiment_id: str) -> None:
        self.call("DELETE", _experiment_path(experiment_id))

    def change(self, experiment_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Limits and labels, live."""
        answer: dict[str, Any] = self.call("PATCH", _experiment_path(experiment_id), body=body).json()
        return answer

    def search_space(self, experiment_id: str) -> dict[str, Any]:
        """The newest revision."""
        answer: dict[str, Any] = self.call("GET", _experiment_path(experiment_id) + "/search-space").json()
        return answer

    def search_space_revisions(self, experiment_id: str) -> list[dict[str, Any]]:
        """Oldest first."""
        return list(self._pages(_experiment_path(experiment_id) + "/search-space/revisions", {}))

    def change_search_space(self, experiment_id: str, search_space: Mapping[str, Any]) -> dict[str, Any]:
        body = {"search_space": search_space}
        answer: dict[str, Any] = self.call("PUT", _experiment_path(experiment_id) + "/search-space", body=body).json()
        return answer

    def import_results(self, experiment_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._verb(_experiment_path(experiment_id) + "/import", body)

    def clone(self, experiment_id: str, body: Mapping[str, Any], *, key: str) -> dict[str, Any]:
        """Repeating the call with the same ``key`` cannot create a second one."""
        path, headers = _experiment_path(experiment_id) + "/clone", {"Idempotency-Key": key}
        answer: dict[str, Any] = self.call("POST", path, body=body, headers=headers).json()
        return answer

    def export(self, experiment_id: str, query: Mapping[str, Any]) -> Iterator[bytes]:
        """The pieces of the file as they come."""
        return self._stream(_experiment_path(experiment_id) + "/export", query)

    def add_trial(self, experiment_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._verb(_experiment_path(experiment_id) + "/trials", body)

    def retry_failed(self, experiment_id: str) -> list[dict[str, Any]]:
        """The new trials, one for each failed one that was not tried again yet."""
        return list(self._verb(_experiment_path(experiment_id) + "/trials/retry", {})["items"])

    def retry_trial(self, experiment_id: str, number: int) -> dict[str, Any]:
        return self._verb(self._trial_path(experiment_id, number) + "/retry", {})

    def trials(self, experiment_id: str, query: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """By number."""
        return list(self._pages(_experiment_path(experiment_id) + "/trials", query or {}))

    def table(
        self, experiment_id: str, columns: Sequence[str], query: Mapping[str, Any] | None = None
    ) -> Iterator[list[list[Any]]]:
        """What each of ``columns`` holds of every trial, by number, some thousands of trials at a time.

        The service makes the next of these pages while the caller works on the one it has.
        """
        path = f"{_experiment_path(experiment_id)}/table"
        wanted: dict[str, Any] = {**(query or {}), "columns": ",".join(columns), "limit": TABLE_PAGE_SIZE}
        while True:
            page = self.call("GET", path, query=wanted).json()
            wanted["cursor"] = page["next"]
            if page["next"] is not None:
                self._ask(path, wanted)
            yield [page["columns"][column] for column in columns]
            if page["next"] is None:
                return

    def analysis(self, experiment_id: str, name: str, query: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """``best``, ``pareto``, ``importance``, ``slices`` or ``curves``."""
        found: dict[str, Any] = self.call("GET", f"{_experiment_path(experiment_id)}/{name}", query=query or {}).json()
        return found

    def trial(self, experiment_id: str, number: int, *, wait_s: float | None = None) -> dict[str, Any]:
        return self._read(self._trial_path(experiment_id, number), wait_s)

    def stop_trial(self, experiment_id: str, number: int) -> dict[str, Any]:
        return self._verb(self._trial_path(experiment_id, number) + "/stop", {})

    def metrics(self, experiment_id: str, number: int) -> list[dict[str, Any]]:
        return list(self._pages(self._trial_path(experiment_id, number) + "/metrics", {}, page=10_000))

    def checkpoints(self, experiment_id: str, number: int) -> list[dict[str, Any]]:
        return list(self._pages(self._trial_path(experiment_id, number) + "/checkpoints", {}))

    def log(self, experiment_id: str, number: int, query: Mapping[str, Any]) -> Answer:
        """One range; the headers Log-End, Log-Size and Log-Ended say what there is."""
        return self.call("GET", self._trial_path(experiment_id, number) + "/logs", query=query)

    def agents(self) -> list[dict[str, Any]]:
        """Those connected now."""
        return list(self.call("GET", "/api/v1/agents").json()["items"])

    def devices(self) -> list[dict[str, Any]]:
        """Of the agents connected now, with the trials that hold them."""
        return list(self.call("GET", "/api/v1/devices").json()["items"])

    def quota_groups(self) -> list[dict[str, Any]]:
        return list(self.call("GET", "/api/v1/quota-groups").json()["items"])

    def set_quota_group(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Make it, or change it."""
        group: dict[str, Any] = self.call("PUT", _group_path(name), body=body).json()
        return group

    def delete_quota_group(self, name: str) -> None:
        self.call("DELETE", _group_path(name))

    def readiness(self) -> dict[str, Any]:
        """What is ready, also when not everything is."""
        try:
            answer: dict[str, Any] = self.call("GET", "/readyz").json()
        except ProblemError as exc:
            answer = dict(exc.problem)
        return answer

    def health(self) -> dict[str, Any]:
        answer: dict[str, Any] = self.call("GET", "/healthz", timeout_s=HEALTH_TIMEOUT_S).json()
        return answer

    def _read(self, path: str, wait_s: float | None) -> dict[str, Any]:
        query = {} if wait_s is None else {"wait_for": "ended", "timeout": wait_s}
        timeout_s = REQUEST_TIMEOUT_S if wait_s is None else wait_s + WAIT_MARGIN_S
        answer: dict[str, Any] = self.call("GET", path, query=query, timeout_s=timeout_s).json()
        return answer

    def _verb(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self.call("POST", path, body=body).json()
        return answer

    def _pages(self, path: str, query: Mapping[str, Any], *, page: int = PAGE_SIZE) -> Iterator[dict[str, Any]]:
        cursor = None
        while True:
            wanted = {**query, "limit": page, **({"cursor": cursor} if cursor else {})}
            answer = self.call("GET", path, query=wanted).json()
            yield from answer["items"]
            cursor = answer["next"]
            if cursor is None:
                return

    @staticmethod
    def _trial_path(experiment_id: str, number: int) -> str:
        return f"/api/v1/trials/{quote(experiment_id, safe='')}/{number}"

    # ── HTTP ────────────────────────────────────────────────────────────────────────────────────
    def call(  # noqa: PLR0913  # the parts of a request
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Answer:
        """The answer; ProblemError for one that refuses, UnreachableError for none."""
        target = _target(path, query)
        sent = {**self._authorization, **(headers or {})}
        data = None
        if body is not None:
            data = json.dumps(body, allow_nan=False).encode()
            sent["Content-Type"] = "application/json"
        answer = self._exchange(method, target, data=data, headers=sent, timeout_s=timeout_s)
        if answer.status >= 400:
            raise ProblemError(answer.status, _problem(answer))
        return answer

    @property
    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}

    def _ask(self, path: str, query: Mapping[str, Any]) -> None:
        """Have the service begin with what is read next. Any other call gives that up; a fault is met by the call."""
        import http.client

        target = _target(path, query)
        with suppress(OSError, http.client.HTTPException):
            self._connect(REQUEST_TIMEOUT_S).request("GET", target, headers=self._authorization)
            self._asked = target

    def _stream(self, path: str, query: Mapping[str, Any]) -> Iterator[bytes]:
        import http.client

        self.close()  # an answer that was not read to its end must leave nothing on a connection that is kept
        try:
            connection = self._connect(REQUEST_TIMEOUT_S)
            target = path + "?" + urlencode(query)
            connection.request("GET", target, headers=self._authorization)
            response = connection.getresponse()
            if response.status >= 400:
                headers = dict(response.headers.items())
                answer = Answer(status=response.status, headers=headers, data=response.read())
                raise ProblemError(answer.status, _problem(answer))
            while data := response.read(STREAM_BYTES):
                yield data
        except (OSError, http.client.HTTPException) as exc:
            raise UnreachableError(f"{self.url} broke off its answer: {exc!r}") from exc
        finally:
            self.close()

    def _exchange(
        self, method: str, target: str, *, data: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> Answer:
        import http.client  # here, because a command that starts a service has that started first

        # A connection kept open may have been closed by the service meanwhile; a fresh one is tried once. Only what
        # may safely be repeated is: reads, and creations that carry their key.
        is_repeatable = method == "GET" or "Idempotency-Key" in headers
        if self._asked not in (None, target):
            self.close()
        for is_last in (False, True):
            is_fresh = self._connection is None
            try:
                connection = self._connect(timeout_s)
                if self._asked is None:
                    connection.request(method, target, body=data, headers=dict(headers))
                self._asked = None
                response = connection.getresponse()
                return Answer(status=response.status, headers=dict(response.headers.items()), data=response.read())
            except TimeoutError as exc:
                self.close()
                raise UnreachableError(f"{self.url} did not answer within {timeout_s:g} s") from exc
            except (OSError, http.client.HTTPException) as exc:
                self.close()
                if is_last or is_fresh or not is_repeatable:
                    raise UnreachableError(f"no service answers at {self.url}: {exc}") from exc
        raise UnreachableError(f"no service answers at {self.url}")

    def _connect(self, timeout_s: float) -> HTTPConnection:
        import http.client

        if self._connection is None:
            parts = urlsplit(self.url)
            secure = parts.scheme == "https"
            cls = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            self._connection = cls(parts.hostname or "", parts.port, timeout=timeout_s)
        self._connection.timeout = timeout_s
        if self._connection.sock is not None:
            self._connection.sock.settimeout(timeout_s)
        return self._connection


def _target(path: str, query: Mapping[str, Any] | None) -> str:
    return path + ("?" + urlencode(query, doseq=True) if query else "")


def _group_path(name: str) -> str:
    return f"/api/v1/quota-groups/{quote(name, safe='')}"


def _experiment_path(experiment_id: str) -> str:
    return f"/api/v1/experiments/{quote(experiment_id, safe='')}"


def _problem(answer: Answer) -> Mapping[str, Any]:
    try:
        problem = answer.json()
    except ValueError:
        problem = None
    return problem if isinstance(problem, dict) else {"detail": f"the service answered {answer.status}"}


# ── finding and starting ────────────────────────────────────────────────────────────────────────
def find_service(settings: Settings) -> Client | None:
    """The service of the settings' URL or home folder; None when none runs. UnreachableError: it runs and hangs."""
    if settings.url:
        return Client(settings.url, _token(settings))
    described = read_service_file(settings)
    if described is None or not _is_alive(described["pid"]):
        return None
    client = Client(described["url"], _token(settings))
    try:
        health = client.health()
    except UnreachableError as exc:
        client.close()
        if isinstance(exc.__cause__, TimeoutError):
            raise UnreachableError(
                f"the service of {settings.home} (process {described['pid']}) does not answer: {exc}; "
                "its log is service.log there"
            ) from exc
        return None  # it is on its way out, or another process has its number now
    except ProblemError:
        client.close()
        return None  # something else listens at its old address
    if health.get("pid") != described["pid"]:
        client.close()
        return None
    return client


def require_service(settings: Settings) -> Client:
    """UnreachableError, with what to do, when none runs."""
    client = find_service(settings)
    if client is None:
        raise UnreachableError(
            f"no service runs on {settings.home}; start one with `tuner serve --home {settings.home}`"
        )
    return client


def read_service_file(settings: Settings) -> dict[str, Any] | None:
    """None when there is none, or it is not what a service writes."""
    try:
        described = json.loads(settings.service_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(described, dict) or not isinstance(described.get("pid"), int):
        return None
    return described if isinstance(described.get("url"), str) else None


@dataclass
class StartingService:
    """A service on its way; ``wait`` ends in a client, whoever started it."""

    settings: Settings
    process: subprocess.Popen[bytes]
    log_start: int

    def wait(self) -> Client:
        """Returns once it answers. UnreachableError with the end of its log if it does not come up in time."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            code = self.process.poll()
            described = read_service_file(self.settings)
            # One that another command started at the same moment is as good; ours then gives way.
            if described is not None and (described["pid"] == self.process.pid or code is not None):
                client = find_service(self.settings)
                if client is not None:
                    return client
            if code is not None and not self._another_is_starting():
                raise UnreachableError(f"the service ended with exit code {code} at its start:\n{self._log_tail()}")
            time.sleep(START_POLL_S)
        raise UnreachableError(f"the service did not answer within {START_TIMEOUT_S:g} s:\n{self._log_tail()}")

    def _another_is_starting(self) -> bool:
        """Whether another living process holds the database: its lock file names it."""
        return database_holder(self.settings) not in {None, self.process.pid}

    def _log_tail(self) -> str:
        try:
            with self.settings.log_file.open("rb") as stream:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(max(self.log_start, size - LOG_TAIL_BYTES))
                return stream.read().decode("utf-8", "replace").strip()
        except OSError as exc:
            return f"(its log {self.settings.log_file} cannot be read: {exc.strerror})"


def database_holder(settings: Settings) -> int | None:
    """The living process that the database's lock file names; None without one."""
    file = settings.database_file
    if file is None:
        return None
    try:
        holder = file.with_name(file.name + ".lock").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(holder) if holder.isdecimal() and _is_alive(int(holder)) else None


def start_service(settings: Settings) -> StartingService:
    """Start a service on the settings' home folder; it outlives this process. Returns before it answers."""
    try:
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        log = settings.log_file.open("ab")
    except OSError as exc:
        raise UnreachableError(f"the home folder {settings.home} cannot be used: {exc.strerror}") from exc
    command = [sys.executable, "-m", "tuner_service.cli.main", "serve"]
    command += ["--home", str(settings.home), "--db", settings.db]
    command += ["--port", str(settings.port), "--host", settings.host, "--log-level", settings.log_level]
    with log:
        start = log.seek(0, os.SEEK_END)
        process = _spawn(command, log)
    return StartingService(settings=settings, process=process, log_start=start)


def _spawn(command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C in this terminal, or its end, is no reason for the service to stop.
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def stop_service(settings: Settings, *, timeout_s: float = 30.0) -> bool:
    """Ask the service of the home folder to end; trials run on. Whether there was one."""
    described = read_service_file(settings)
    if described is None or not _is_alive(described["pid"]):
        return False
    os.kill(described["pid"], signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while _is_alive(described["pid"]) and time.monotonic() < deadline:
        time.sleep(START_POLL_S)
    return True


def _token(settings: Settings) -> str:
    if settings.token:
        return settings.token
    file: Path = settings.token_file
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as exc:
        raise ClientError(
            f"the token file {file} cannot be read ({exc.strerror}); set TUNER_TOKEN to the service's token"
        ) from exc


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _waits_to_be_reaped(pid)


def _waits_to_be_reaped(pid: int) -> bool:
    """It has ended, though its number is taken: in a container nobody may ever reap it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in {"Z", "X"}
