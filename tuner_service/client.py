"""Talks to a service. Standard library only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tuner_service.client_http import (
    REFUSING_STATUS,
    REQUEST_TIMEOUT_S,
    Answer,
    ClientError,
    ProblemError,
    ServiceConnection,
    TokenWithheldError,
    UnreachableError,
    UnsendableError,
    problem_of,
)
from tuner_service.client_paths import asset_path, cells, experiment_path, group_path, is_done, trial_path

__all__ = [
    "Answer",
    "Client",
    "ClientError",
    "ProblemError",
    "TokenWithheldError",
    "UnreachableError",
    "UnsendableError",
]

HEALTH_TIMEOUT_S = 10.0  # less, and a busy machine were taken for a service that hangs
TELL_WAIT_S = 30.0  # for the assessor's word about a report
MADE_AS_A_WHOLE = {"parquet", "optuna"}  # exports whose first byte comes when they are complete
SLOW_TIMEOUT_S = 3_600.0  # for a disk to take in what was sent, or a file to be made as a whole
WAIT_MARGIN_S = 10.0  # on top of how long the service was asked to wait
PAGE_SIZE = 1_000
TABLE_PAGE_SIZE = 2_000
EXACT_DIGITS = 17  # tell every number from every other
EVENTS_TIMEOUT_S = 40.0  # without a word on a stream of events; the service sends a heartbeat every fifteen seconds


class Client(ServiceConnection):
    """What a service can be asked. Not thread-safe."""

    # ── calls ───────────────────────────────────────────────────────────────────────────────────
    def create(self, body: Mapping[str, Any], *, key: str | None = None, dry_run: bool = False) -> Any:
        """With ``key``, repeating the call cannot create a second experiment."""
        headers = {"Idempotency-Key": key} if key else {}
        query = {"dry_run": "true"} if dry_run else {}
        return self.call("POST", "/api/v1/experiments", body=body, query=query, headers=headers).json()

    def experiments(self, query: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Newest first; ``query`` may hold ``project``, ``tag``, ``status`` and ``name``."""
        return list(self._pages("/api/v1/experiments", query or {}))

    def experiment(self, experiment_id: str, *, wait_s: float | None = None) -> dict[str, Any]:
        """With ``wait_s``: once it has ended, or after so many seconds."""
        return self._read(experiment_path(experiment_id), wait_s)

    def events(self, experiment_id: str) -> Iterator[bytes]:
        """Of it, as they come, on this connection, until the service or ``hang_up`` ends them."""
        path = experiment_path(experiment_id) + "/events"
        return self._stream(path, {}, timeout_s=EVENTS_TIMEOUT_S, as_it_comes=True)

    def code_changes(self, experiment_id: str) -> bytes:
        """The diff of its code."""
        return self.call("GET", experiment_path(experiment_id) + "/code-changes").data

    def pause(self, experiment_id: str) -> dict[str, Any]:
        return self._verb(experiment_path(experiment_id) + "/pause", {})

    def resume(self, experiment_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._verb(experiment_path(experiment_id) + "/resume", body)

    def stop(self, experiment_id: str) -> dict[str, Any]:
        return self._verb(experiment_path(experiment_id) + "/stop", {})

    def delete(self, experiment_id: str) -> bool:
        """Whether it is gone; False: it has many metrics, and is gone when they are."""
        return is_done(self.call("DELETE", experiment_path(experiment_id)).status)

    def change(self, experiment_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Limits and labels, live."""
        answer: dict[str, Any] = self.call("PATCH", experiment_path(experiment_id), body=body).json()
        return answer

    def search_space(self, experiment_id: str) -> dict[str, Any]:
        """The newest revision."""
        return dict(self.call("GET", experiment_path(experiment_id) + "/search-space").json())

    def search_space_revisions(self, experiment_id: str) -> list[dict[str, Any]]:
        """Oldest first."""
        return list(self._pages(experiment_path(experiment_id) + "/search-space/revisions", {}))

    def change_search_space(self, experiment_id: str, search_space: Mapping[str, Any]) -> dict[str, Any]:
        body = {"search_space": search_space}
        answer: dict[str, Any] = self.call("PUT", experiment_path(experiment_id) + "/search-space", body=body).json()
        return answer

    def import_results(self, experiment_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._verb(experiment_path(experiment_id) + "/import", body)

    def clone(self, experiment_id: str, body: Mapping[str, Any], *, key: str) -> dict[str, Any]:
        """Repeating the call with the same ``key`` cannot create a second one."""
        path, headers = experiment_path(experiment_id) + "/clone", {"Idempotency-Key": key}
        answer: dict[str, Any] = self.call("POST", path, body=body, headers=headers).json()
        return answer

    def export(self, experiment_id: str, query: Mapping[str, Any]) -> Iterator[bytes]:
        """The pieces of the file as they come; the first one once a file that is made as a whole is there."""
        timeout_s = SLOW_TIMEOUT_S if query.get("format") in MADE_AS_A_WHOLE else REQUEST_TIMEOUT_S
        return self._stream(experiment_path(experiment_id) + "/export", query, timeout_s=timeout_s)

    def add_trial(self, experiment_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._verb(experiment_path(experiment_id) + "/trials", body)

    def ask(self, experiment_id: str, *, key: str, wait_s: float) -> dict[str, Any]:
        """The trial to evaluate, with its token; repeating the call with the same ``key`` gives the same one.

        ProblemError 503 where there is none within ``wait_s``, 409 where the experiment has ended.
        """
        path, headers = experiment_path(experiment_id) + "/ask", {"Idempotency-Key": key}
        query, timeout_s = {"timeout": wait_s}, wait_s + WAIT_MARGIN_S
        answer: dict[str, Any] = self.call("POST", path, query=query, headers=headers, timeout_s=timeout_s).json()
        return answer

    def tell(self, experiment_id: str, body: Mapping[str, Any], *, wait_s: float = TELL_WAIT_S) -> dict[str, Any]:
        """What became of the trial, and the ``decision``: to continue or to stop. Telling it again is harmless."""
        path, query = experiment_path(experiment_id) + "/tell", {"timeout": wait_s}
        answer: dict[str, Any] = self.call(
            "POST", path, body=body, query=query, timeout_s=wait_s + WAIT_MARGIN_S
        ).json()
        return answer

    def retry_failed(self, experiment_id: str) -> list[dict[str, Any]]:
        """The new trials, one for each failed one that was not tried again yet."""
        return list(self._verb(experiment_path(experiment_id) + "/trials/retry", {})["items"])

    def retry_trial(self, experiment_id: str, number: int) -> dict[str, Any]:
        return self._verb(trial_path(experiment_id, number) + "/retry", {})

    def trials(self, experiment_id: str, query: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """By number."""
        return list(self._pages(experiment_path(experiment_id) + "/trials", query or {}))

    def first_trial(self, experiment_id: str, query: Mapping[str, Any]) -> dict[str, Any] | None:
        """The one with the lowest number."""
        return next(self._pages(experiment_path(experiment_id) + "/trials", query, page=1), None)

    def table(
        self, experiment_id: str, columns: Sequence[str], query: Mapping[str, Any] | None = None
    ) -> Iterator[list[list[Any]]]:
        """What each of ``columns`` holds of every trial, by number, some thousands of trials at a time.

        The service makes the next of these pages while the caller works on the one it has.
        """
        path = f"{experiment_path(experiment_id)}/table"
        wanted: dict[str, Any] = {**(query or {}), "columns": ",".join(columns), "limit": TABLE_PAGE_SIZE}
        wanted["digits"] = EXACT_DIGITS
        while True:
            page = self.call("GET", path, query=wanted).json()
            wanted["cursor"] = page["next"]
            if page["next"] is not None:
                self._ask(path, wanted)
            yield [cells(page["columns"][column]) for column in columns]
            if page["next"] is None:
                return

    def analysis(self, experiment_id: str, name: str, query: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """``best``, ``pareto``, ``importance``, ``slices`` or ``curves``."""
        found: dict[str, Any] = self.call("GET", f"{experiment_path(experiment_id)}/{name}", query=query or {}).json()
        return found

    def plot(self, experiment_id: str, kind: str, form: str) -> bytes:
        """A picture; ``form`` is png or svg."""
        return self.call("GET", f"{experiment_path(experiment_id)}/plot.{form}", query={"kind": kind}).data

    def trial(self, experiment_id: str, number: int, *, wait_s: float | None = None) -> dict[str, Any]:
        return self._read(trial_path(experiment_id, number), wait_s)

    def stop_trial(self, experiment_id: str, number: int) -> dict[str, Any]:
        return self._verb(trial_path(experiment_id, number) + "/stop", {})

    def metrics(self, experiment_id: str, number: int) -> list[dict[str, Any]]:
        return list(self._pages(trial_path(experiment_id, number) + "/metrics", {}, page=10_000))

    def checkpoints(self, experiment_id: str, number: int) -> list[dict[str, Any]]:
        answer = self.call("GET", trial_path(experiment_id, number) + "/checkpoints")
        found: list[dict[str, Any]] = answer.json()["items"]
        return found

    def trial_files(self, experiment_id: str, number: int, query: Mapping[str, Any]) -> dict[str, Any]:
        """Which asset its output is, or the ``checkpoint`` in ``query``, and whether that is all that it left."""
        path = trial_path(experiment_id, number) + "/files"
        return dict(self.call("GET", path, query={**query, "limit": 1}).json())

    def log(self, experiment_id: str, number: int, query: Mapping[str, Any]) -> Answer:
        """One range; the headers Log-End, Log-Size and Log-Ended say what there is."""
        return self.call("GET", trial_path(experiment_id, number) + "/logs", query=query)

    def resources(self, experiment_id: str, number: int, query: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What an attempt used over time."""
        return list(self.call("GET", trial_path(experiment_id, number) + "/resources", query=query).json()["samples"])

    def agents(self) -> list[dict[str, Any]]:
        """The nodes: those connected now, and those away on which trials run."""
        return list(self.call("GET", "/api/v1/agents").json()["items"])

    def devices(self) -> list[dict[str, Any]]:
        """Of the agents connected now, with the trials that hold them."""
        return list(self.call("GET", "/api/v1/devices").json()["items"])

    def make_code(self) -> dict[str, Any]:
        """By which a browser signs in, once and soon: what it opens is ``path``."""
        return self._verb("/api/v1/session-codes", {})

    def quota_groups(self) -> list[dict[str, Any]]:
        return list(self.call("GET", "/api/v1/quota-groups").json()["items"])

    def quota_group_body(self, name: str) -> dict[str, Any]:
        """What the group is now, to be changed; of one that is not there, what is taken by default."""
        known = next((group for group in self.quota_groups() if group["name"] == name), {})
        quotas = {"gpus": known.get("gpus"), "cpus": known.get("cpus"), "memory": known.get("memory_bytes")}
        return {**quotas, "borrows": known.get("borrows", True)}

    def set_quota_group(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Make it, or change it."""
        if not name or "/" in name:
            raise UnsendableError(f"a quota group has a name without a slash, not {name!r}")
        group: dict[str, Any] = self.call("PUT", group_path(name), body=body).json()
        return group

    def delete_quota_group(self, name: str) -> None:
        self.call("DELETE", group_path(name))

    # ── assets ──────────────────────────────────────────────────────────────────────────────────
    @property
    def is_of_home(self) -> bool:
        """Whether it is the service of a home folder of this machine and user."""
        return self._admit is not None

    def another(self) -> Client:
        """For another thread."""
        return Client(self.url, self._token, admit=self._admit, tls=self._make_tls)

    def assets(self, query: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Newest first."""
        return list(self._pages("/api/v1/assets", query or {}))

    def asset(self, reference: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", asset_path(reference)).json()
        return found

    def asset_files(self, reference: str) -> Iterator[dict[str, Any]]:
        """By path, as they come."""
        return self._pages(asset_path(reference) + "/files", {})

    def delete_asset(self, reference: str) -> None:
        self.call("DELETE", asset_path(reference))

    def asset_store(self) -> dict[str, Any]:
        """Where files lie."""
        found: dict[str, Any] = self.call("GET", "/api/v1/assets/store").json()
        return found

    def missing(self, manifest: Mapping[str, Any], *, after: int) -> dict[str, Any]:
        """Which pieces have to be sent, of the files after that place."""
        return self._slow_verb("/api/v1/assets/missing", {"manifest": manifest, "after": after})

    def missing_assets(self, experiment_id: str) -> list[dict[str, Any]]:
        """What it needs and the store has not."""
        query = {"experiment": experiment_id}
        return list(self.call("GET", "/api/v1/assets/missing", query=query).json()["items"])

    def add_asset(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Of what was sent; repeating it is harmless."""
        return self._slow_verb("/api/v1/assets", body)

    def send_piece(self, digest: str, data: bytes) -> None:
        headers = {**self._authorization, "Content-Type": "application/octet-stream"}
        answer = self._exchange(
            "PUT", f"/api/v1/assets/pieces/{digest}", data=data, headers=headers, timeout_s=REQUEST_TIMEOUT_S
        )
        if answer.status >= REFUSING_STATUS:
            raise ProblemError(answer.status, problem_of(answer))

    def asset_bytes(self, digest: str, *, offset: int, length: int) -> bytes:
        """A range of a file of the store."""
        headers = {"Range": f"bytes={offset}-{offset + length - 1}"} if length else {}
        return self.call("GET", f"/api/v1/assets/bytes/{digest}", headers=headers).data

    def _slow_verb(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """What may take as long as the disk of the service takes for all that was sent."""
        return dict(self.call("POST", path, body=body, timeout_s=SLOW_TIMEOUT_S).json())

    def readiness(self) -> dict[str, Any]:
        """What is ready, also when not everything is."""
        try:
            answer: dict[str, Any] = self.call("GET", "/readyz").json()
        except ProblemError as exc:
            answer = dict(exc.problem)
        return answer

    def health(self) -> dict[str, Any]:
        return dict(self.call("GET", "/healthz", timeout_s=HEALTH_TIMEOUT_S).json())

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
