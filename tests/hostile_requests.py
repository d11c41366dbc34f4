"""Requests with a token that ask for as much work as they can, and how long everybody else waits meanwhile."""

from __future__ import annotations

import base64
import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.api_service import a_body
from tests.command_line import command_line
from tests.waiting import wait_until
from tuner_service.api.bodies.strict_json import MAX_JSON_VALUES, MAX_KEYS
from tuner_service.api.guard import MAX_BODY_BYTES
from tuner_service.client import Client

CREATE = "/api/v1/experiments"
DRY_RUN = f"{CREATE}?dry_run=true"
PROBE_EVERY_S = 0.01
REQUEST_TIMEOUT_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Hostile:
    """``path`` has a place for the id of an experiment."""

    name: str
    method: str = "POST"
    path: str = DRY_RUN
    body: Callable[[], bytes] = bytes
    headers: dict[str, str] = field(default_factory=dict)


def hostile_requests() -> Iterator[Hostile]:
    """The largest and the nastiest that the limits let through, or nearly."""
    yield from _texts()
    yield from _files()
    yield from _spaces()
    yield from _changes()
    yield from _addresses()


# ── what is wrong with the JSON ─────────────────────────────────────────────────────────────────
def _texts() -> Iterator[Hostile]:
    size = MAX_BODY_BYTES
    values = MAX_JSON_VALUES - 10
    yield from (
        Hostile(name=f"a body of {name}", body=body)
        for name, body in {
            "empty objects": lambda: b"[" + b"{}," * (size // 3 - 1) + b"{}]",
            "ones": lambda: b"[" + b"1," * (size // 2 - 2) + b"1]",
            "as many empty objects as are taken": lambda: b"[" + b"{}," * (values // 2) + b"{}]",
            "as many ones as are taken": lambda: b"[" + b"1," * values + b"1]",
            "as many decimals as are taken": lambda: b"[" + b"1.2345678901234567," * values + b"1]",
            "whole numbers of 1,000 digits": lambda: b"[" + (b"9" * 1_000 + b",") * (size // 1_001 - 1) + b"1]",
            "one whole number": lambda: b"9" * size,
            "one decimal": lambda: b"1." + b"9" * (size - 2),
            "whitespace": lambda: b"[1" + b" " * (size - 4) + b"]",
            "quotes": lambda: b'"' * size,
            "backslashes": lambda: b'"' + b"\\" * (size - 2) + b'"',
            "escapes": lambda: b'"' + b"\\n" * (size // 2 - 1) + b'"',
            "one text": lambda: b'"' + "a😀".encode() * (size // 5 - 1) + b'"',
            "short texts": lambda: b"[" + b'"",' * (values - 1) + b'""]',
            "brackets": lambda: b"[" * size,
            "objects in objects": lambda: b'{"a":' * (size // 5),
            "one key": lambda: b'{"' + b"k" * (size - 6) + b'":1}',
            "many keys": lambda: b"{" + b",".join(b'"%d":1' % number for number in range(9_999)) + b"}",
            "too many keys": lambda: b"{" + b",".join(b'"%d":1' % number for number in range(values)) + b"}",
            "keys and one of them twice": lambda: (
                b"{" + b",".join(b'"%d":1' % n for n in (*range(values), values - 1)) + b"}"
            ),
            "zeros": lambda: b"\0" * size,
            "no UTF-8": lambda: b'"' + b"\xff" * (size - 2) + b'"',
        }.items()
    )


# ── files ───────────────────────────────────────────────────────────────────────────────────────
def _files() -> Iterator[Hostile]:
    many, keys = MAX_JSON_VALUES // 2, MAX_KEYS - 1
    places: dict[str, Callable[[], dict[str, Any]]] = {
        "a long duration": lambda: {"/budget/duration": "9" * 20_000},
        "a duration of many parts": lambda: {"/budget/duration": "1s" * 1_000_000},
        "a long size": lambda: {"/trial/resources/memory": "9" * 5_000_000 + "GB"},
        "a long command": lambda: {"/trial/command": "a " * 4_000_000},
        "a command that is taken": lambda: {"/trial/command": "a\\ " * 33_000},
        "words": lambda: {"/trial/command": ["a" * 50_000] * 400},
        "a long name": lambda: {"/name": "n" * 20_000_000},
        "a long pattern": lambda: {"/trial/metrics_pattern": "(" * 5_000_000},
        "an odd pattern": lambda: {"/trial/metrics_pattern": "(?i)(?P<a>x)" + "[a\x01-\U0010ffff]" * 150},
        "variables": lambda: {"/trial/environment": {f"K{number}": None for number in range(keys)}},
        "modules": lambda: {"/trial/preload": ["9"] * many},
        "an entry point": lambda: {"/trial/entry_point": "a." * 5_000_000 + ":"},
        "code files that are none": lambda: {"/trial/code": {"files": [1] * many}},
        "code files with fields": lambda: {"/trial/code": {"files": [{str(n): 1 for n in range(20)}] * 10_000}},
        "code files in folders": lambda: {"/trial/code": {"files": _deep_files()}},
        "code": lambda: {"/trial/code": {"files": [_large_file()]}},
        "unknown fields": lambda: {f"/{'x' * 20}{number}": 1 for number in range(keys)},
        "unknown options": lambda: {"/tuner": {"name": "tpe", "args": {f"k{number}": 1 for number in range(keys)}}},
        "a long tuner": lambda: {"/tuner": "t" * 20_000_000},
        "objectives": lambda: {"/objective": [{"metric": str(number)} for number in range(many // 2)]},
        "a later field": lambda: {"/trial/datasets": [1] * many},
    }  # fmt: skip
    for name, given in places.items():
        yield Hostile(name=f"a file with {name}", body=partial(_file, given), headers={"idempotency-key": "k" * 200})


def _deep_files() -> list[dict[str, str]]:
    return [{"path": f"{n}/" + "abcdefgh/" * 99 + "b", "content": ""} for n in range(10_000)]


def _large_file() -> dict[str, str]:
    return {"path": "a", "content_base64": base64.b64encode(b"\x07" * (15 << 20)).decode()}


def _file(given: Callable[[], dict[str, Any]]) -> bytes:
    body = json.loads(json.dumps(a_body()))
    for pointer, value in given().items():
        *parts, last = pointer[1:].split("/")
        target = body
        for part in parts:
            target = target.setdefault(part, {})
        target[last] = value
    return json.dumps(body).encode()


# ── search spaces ───────────────────────────────────────────────────────────────────────────────
def _spaces() -> Iterator[Hostile]:
    for name, space in _hostile_spaces().items():
        yield Hostile(name=f"a space with {name}", body=partial(_created_with, space))
        yield Hostile(
            name=f"another space with {name}",
            method="PUT",
            path=f"{CREATE}/{{id}}/search-space",
            body=partial(_written, lambda space=space: {"search_space": space()}),
        )


def _created_with(space: Callable[[], Any]) -> bytes:
    return json.dumps(a_body(search_space=space())).encode()


def _written(value: Callable[[], Any]) -> bytes:
    return json.dumps(value()).encode()


def _hostile_spaces() -> dict[str, Callable[[], Any]]:
    chain: dict[str, Any] = {f"p{n}": {"type": "bool", "when": {f"p{n + 1}": True}} for n in range(998)}
    chain["p998"] = {"type": "bool"}
    everything = {f"p{n}": {"type": "bool"} for n in range(500)}
    wide = {f"q{n}": {"type": "bool", "when": dict.fromkeys(everything, True)} for n in range(100)}
    odd_option: Any = {"x" * 900: [[None, {}] * 2_000] * 10}
    grid = {f"p{n}": {"type": "categorical", "choices": list(range(9_000))} for n in range(10)}
    return {
        "options": lambda: {"a": {"_type": "choice", "_value": list(range(99_999))}},
        "too many options": lambda: {"a": {"_type": "choice", "_value": list(range(400_000))}},
        "long options": lambda: {"a": {"_type": "choice", "_value": [f"{n}" + "x" * 30 for n in range(99_999)]}},
        "one long option": lambda: {"a": {"_type": "choice", "_value": ["x" * 20_000_000]}},
        "parameters": lambda: {f"p{n}": {"_type": "uniform", "_value": [0, 1]} for n in range(1_000)},
        "too many parameters": lambda: {f"p{n}": {"_type": "uniform", "_value": [0, 1]} for n in range(100_000)},
        "a chain of conditions": lambda: chain,
        "wide conditions": lambda: wide | everything,
        "an odd option": lambda: {"a": {"_type": "choice", "_value": [odd_option] * 10}},
        "constraints that never hold": lambda: {f"p{n}": {"type": "float", "low": 0, "high": 1} for n in range(900)}
        | {"constraints": ["p0 > 2"] + [" + ".join(f"p{n}" for n in range(140)) + " > 0"] * 99},
        "places to count": lambda: {"c": {"type": "int", "low": 0, "high": 9}, "constraints": ["c >= 0"]} | grid,
        "faults": lambda: {f"p{n}": {"_type": "choice", "_value": []} for n in range(1_000)},
    }  # fmt: skip


# ── changes ─────────────────────────────────────────────────────────────────────────────────────
def _changes() -> Iterator[Hostile]:
    many, keys = MAX_JSON_VALUES // 2, MAX_KEYS - 1
    one = f"{CREATE}/{{id}}"
    results = {
        "results": lambda: [{"parameters": {"lr": 0.01, **{f"k{n}": n for n in range(20)}}, "value": 1.0}] * 10_000,
        "results with unknown fields": lambda: (
            [{"parameters": {}, "value": 1.0, **{f"k{n}": 1 for n in range(20)}}] * 10_000
        ),
        "results that are none": lambda: [1] * many,
        "faulty results": lambda: [{"parameters": 1, "value": "x", "status": 1, "step": "u"}] * 10_000,
        "unknown parameters": lambda: [{"parameters": {f"k{n}": n for n in range(40)}, "value": 1.0}] * 5_000,
    }
    for name, given in results.items():
        body = partial(_written, lambda given=given: {"results": given()})
        yield Hostile(name=f"an import of {name}", path=f"{one}/import", body=body)
    bodies: dict[str, tuple[str, str, Callable[[], Any]]] = {
        "a change of a name": ("PATCH", one, lambda: {"name": "n" * 8_000_000}),
        "a change of a note": ("PATCH", one, lambda: {"note": "n" * 8_000_000}),
        "tags": ("PATCH", one, lambda: {"tags": ["t"] * many}),
        "unknown fields": ("PATCH", one, lambda: {f"k{number}": 1 for number in range(keys)}),
        "a trial with unknown parameters": (
            "POST",
            f"{one}/trials",
            lambda: {"parameters": {f"k{n}": 1 for n in range(keys)}},
        ),
        "a trial outside": ("POST", f"{one}/trials", lambda: {"parameters": {"lr": [1] * many}}),
        "numbers": ("POST", f"{one}/trials/retry", lambda: {"numbers": list(range(1, many))}),
        "a clone": ("POST", f"{one}/clone", lambda: {"name": "n" * 8_000_000}),
        "a resume": ("POST", f"{one}/resume", lambda: {"code": {"files": [{}] * many}}),
        "a pause": ("POST", f"{one}/pause", lambda: {f"k{number}": 1 for number in range(keys)}),
        "a group": ("PUT", "/api/v1/quota-groups/g", lambda: {"gpus": [1] * many}),
    }
    for name, (method, path, made) in bodies.items():
        yield Hostile(name=f"a body with {name}", method=method, path=path, body=partial(_written, made))


# ── addresses and headers ───────────────────────────────────────────────────────────────────────
def _addresses() -> Iterator[Hostile]:
    one = f"{CREATE}/{{id}}"
    headers: dict[str, tuple[str, dict[str, str]]] = {
        "If-Match": ("PATCH", {"if-match": ", ".join(f'W/"{n}"' for n in range(4_000))}),
        "If-None-Match": ("GET", {"if-none-match": ", ".join(f'W/"{n}"' for n in range(4_000))}),
        "Host": ("GET", {"host": "a." * 15_000}),
        "Origin": ("GET", {"origin": "http://" + "a." * 15_000}),
        "Authorization": ("GET", {"authorization": "Bearer " + "t" * 30_000}),
        "Content-Type": ("POST", {"content-type": "a;" * 15_000}),
        "Idempotency-Key": ("POST", {"idempotency-key": "k" * 30_000}),
        "many names": ("GET", {f"x-{n}": "1" for n in range(90)}),
    }
    for name, (method, given) in headers.items():
        yield Hostile(
            name=f"a header {name}",
            method=method,
            path=one,
            headers=given,
            body=bytes if method == "GET" else b"{}".strip,
        )
    queries = {
        "statuses": f"{one}/trials?" + "status=failed&" * 4_000,
        "unknown names": f"{one}/trials?" + "&".join(f"k{n}=1" for n in range(5_000)),
        "a cursor": f"{one}/trials?cursor=" + "A" * 50_000,
        "columns": f"{one}/table?columns=" + "number," * 7_000,
        "a limit": f"{one}/trials?limit=" + "9" * 50_000,
        "escapes": f"{one}/trials?cursor=" + "%41" * 15_000,
        "a path": f"{CREATE}/" + "a/" * 25_000,
        "a long id": f"{CREATE}/" + "%61" * 15_000,
        "a long number": "/api/v1/trials/{id}/" + "9" * 50_000,
        "a digest": "/api/v1/trials/{id}/1/checkpoints/" + "a" * 50_000,
    }  # fmt: skip
    for name, path in queries.items():
        yield Hostile(name=f"an address with {name}", method="GET", path=path)


# ── how long the others wait ────────────────────────────────────────────────────────────────────
@dataclass(kw_only=True)
class Waits:
    longest_s: float = 0.0


@contextmanager
def probing(url: str) -> Iterator[Waits]:
    """Asks for /healthz all the time while the block runs."""
    waits, done = Waits(), threading.Event()

    def probe() -> None:
        address = urlsplit(url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=REQUEST_TIMEOUT_S)
        try:
            while not done.is_set():
                begun = time.perf_counter()
                connection.request("GET", "/healthz")
                connection.getresponse().read()
                waits.longest_s = max(waits.longest_s, time.perf_counter() - begun)
                done.wait(PROBE_EVERY_S)
        finally:
            connection.close()

    thread = threading.Thread(target=probe)
    thread.start()
    try:
        yield waits
    finally:
        done.set()
        thread.join()


def send(url: str, token: str, hostile: Hostile, experiment_id: str) -> int:
    """The status of the answer; 0 where the service hung up."""
    body = hostile.body()
    address = urlsplit(url)
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"} | hostile.headers
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=REQUEST_TIMEOUT_S)
    try:
        connection.request(hostile.method, hostile.path.replace("{id}", experiment_id), body=body, headers=headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status
    except ConnectionError:
        return 0
    finally:
        connection.close()


@contextmanager
def a_service(folder: Path) -> Iterator[tuple[str, str]]:
    """The address and the token of a service on a home of its own, as a process of its own."""
    with command_line(folder) as line, (folder / "log").open("w") as log:
        command = [sys.executable, "-m", "tuner_service.cli.main", "serve", "--port", "0"]
        with subprocess.Popen(command, cwd=folder, env=line.environment(), stdout=log, stderr=log) as process:
            wait_until((line.home / "service.json").exists)
            described = json.loads((line.home / "service.json").read_text())
            try:
                yield described["url"], (line.home / "token").read_text().strip()
            finally:
                process.terminate()


def an_experiment_to_attack(client: Client) -> str:
    """Paused before it begins, so that what is added to it stays."""
    experiment_id = str(client.create(a_body())["id"])
    client.pause(experiment_id)
    return experiment_id
