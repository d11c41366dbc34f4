"""Checkpoints of real attempts: where they are put, fetched from and removed, and what a kill in between leaves."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.integration.trials.fake_service import AgentProcess, FakeService
from tests.network_proxy import NetworkProxy
from tests.waiting import wait_until
from trials.agent.moving.node_cache import remove_tree
from trials.wire.checkpoints import CheckpointsWanted
from trials.wire.launch import CheckpointRef
from trials.wire.manifests import AssetFile, digest_of_pieces, pieces_of, write_manifest
from trials.wire.messages import BlobOffered, DeleteCheckpoint, RemoveExperiment
from trials.wire.records import CheckpointRecord

StartAgent = Callable[..., AgentProcess]

SAVE = "import trials\nwith trials.init() as trial:\n    trial.save_checkpoint(b'x' * (17 << 20), step=1)"
CHECK = "import trials\nassert trials.init().restore() == b'x' * (17 << 20)"


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A server that speaks S3, with an empty bucket named "weights"; the environment that leads to it."""
    missing = [name for name in ("s3fs", "moto", "flask", "flask_cors") if find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (tmp_path / "moto.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: answers(f"{url}/moto-api/"))
        make = urllib.request.Request(f"{url}/weights", method="PUT", headers={"Authorization": SIGNED})
        urllib.request.urlopen(make, timeout=180).close()
        yield {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    finally:
        server.kill()
        server.wait()


SIGNED = "AWS4-HMAC-SHA256 Credential=testing/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none"


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except OSError:
        return False
    return True


def listing(s3: dict[str, str]) -> str:
    request = urllib.request.Request(f"{s3['AWS_ENDPOINT_URL']}/weights", headers={"Authorization": SIGNED})
    with urllib.request.urlopen(request, timeout=180) as answer:
        return str(answer.read().decode())


def reference(service: FakeService, nonce: str = "n1") -> CheckpointRef:
    record = next(r for r in service.spools[nonce] if r["kind"] == "checkpoint")
    return CheckpointRef(
        digest=record["digest"], step=record["step"], size=record["size"], path=service.locations.get(record["digest"])
    )


def forget_local_file(service: FakeService, nonce: str = "n1") -> None:
    shutil.rmtree(service.folder(nonce) / "checkpoints")


def test_a_large_checkpoint_goes_to_the_folder_of_the_store_and_comes_back(
    service: FakeService, start_agent: StartAgent, tmp_path: Path
) -> None:
    store = tmp_path / "shared"
    service.checkpoint_store = str(store)
    start_agent()
    service.launch(SAVE)
    assert service.wait_for_exit().exit.code == 0
    ref = reference(service)
    name = service.spools["n1"][-1]["name"]
    assert ref.path == str(store / service.folder().relative_to(service.home / "attempts") / name)
    assert service.of(BlobOffered) == []

    forget_local_file(service)
    service.launch(CHECK, nonce="n2", attempt=2, checkpoints=(ref,))
    assert service.wait_for_exit("n2").exit.code == 0

    assert ref.path is not None
    place = Path(ref.path)
    service.send(DeleteCheckpoint(nonce="n1", name=name, location=ref.path))
    wait_until(lambda: not place.exists())
    outside = tmp_path / "outside"
    outside.write_text("not of the store")
    service.send(DeleteCheckpoint(nonce="n1", name="x", location=f"{store}/../outside"))
    service.send(DeleteCheckpoint(nonce="n1", name="x", location=str(outside)))
    service.send(RemoveExperiment(experiment_id="exp"))
    wait_until(lambda: not (store / "exp").exists())
    assert outside.exists()


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("damaged", ["of the attempt", "of the store"])
def test_of_a_large_checkpoint_damaged_in_place_the_other_copy_is_used(
    service: FakeService, start_agent: StartAgent, tmp_path: Path, damaged: str, *, named: bool
) -> None:
    service.checkpoint_store = str(tmp_path / "shared") if named else ""
    start_agent()
    service.launch(SAVE)
    assert service.wait_for_exit().exit.code == 0
    ref = reference(service)
    assert ref.path is not None
    own = service.folder() / "checkpoints" / service.spools["n1"][-1]["name"]
    with (own if damaged == "of the attempt" else Path(ref.path)).open("r+b") as file:
        file.seek(10 << 20)
        file.write(b"another")

    service.launch(CHECK, nonce="n2", attempt=2, checkpoints=(ref,))

    assert service.wait_for_exit("n2").exit.code == 0


class Breaking(NetworkProxy):
    """Ends each of the first connections once it has brought so many bytes; ``brought``: all that were."""

    def __init__(self, port: int, *, after: int, breaks: int) -> None:
        super().__init__("127.0.0.1", port)
        self.brought, self.breaks_left = 0, breaks
        self._port, self._after = port, after

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        is_answer, brought = source.getpeername()[1] == self._port, 0
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
                brought += len(data) * is_answer
                self.brought += len(data) * is_answer
                if brought >= self._after and self.breaks_left:
                    self.breaks_left -= 1
                    break
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


MOVE = """
import asyncio, sys
from pathlib import Path
from trials.agent.moving.node_cache import NodeCache
from trials.stores import FileStore, fetch

folder, what, place = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
if what == "checkpoint":
    fetch(place, folder / "checkpoint")
else:
    cache = NodeCache(folder / "cache", in_use=lambda: ())
    cache.store = FileStore("s3://weights/assets")
    print(asyncio.run(cache.get(place)))
"""


def moved(s3: dict[str, str], proxy: Breaking, folder: Path, what: str, place: str) -> str:
    """In a process of a node, whose connections to the store break."""
    environment = {**os.environ, **s3, "AWS_ENDPOINT_URL": proxy.url}
    command = [sys.executable, "-W", "ignore", "-c", MOVE, str(folder), what, place]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def an_asset(s3: dict[str, str], data: bytes) -> str:
    """The digest of one with a single file, in the bucket."""
    file = AssetFile(path="data.bin", size=len(data), pieces=pieces_of(data))
    manifest = write_manifest([file])
    digest = digest_of_pieces(pieces_of(manifest))
    for name, body in ((file.digest, data), (digest, manifest)):
        url = f"{s3['AWS_ENDPOINT_URL']}/weights/assets/files/{name[:2]}/{name}"
        headers = {"Authorization": SIGNED, "Content-Type": "application/octet-stream"}
        put = urllib.request.Request(url, data=body, method="PUT", headers=headers)
        urllib.request.urlopen(put, timeout=180).close()
    return digest


@pytest.mark.slow
def test_a_large_checkpoint_goes_to_s3_and_comes_back_and_so_does_an_asset_over_connections_that_break(
    service: FakeService, start_agent: StartAgent, s3: dict[str, str], tmp_path: Path
) -> None:
    service.checkpoint_store = "s3://weights/prefix"
    start_agent(**s3)
    service.launch(SAVE)
    assert service.wait_for_exit().exit.code == 0
    ref = reference(service)
    assert ref.path is not None
    assert ref.path.startswith("s3://weights/prefix/exp/1/1-n1")
    assert ref.path.removeprefix("s3://weights/") in listing(s3)

    forget_local_file(service)
    service.launch(CHECK, nonce="n2", attempt=2, checkpoints=(ref,))
    assert service.wait_for_exit("n2").exit.code == 0

    node, port = tmp_path / "another-node", int(s3["AWS_ENDPOINT_URL"].rpartition(":")[2])
    node.mkdir()
    proxy = Breaking(port, after=6 << 20, breaks=2)
    proxy.listen("127.0.0.1")
    try:
        moved(s3, proxy, node, "checkpoint", ref.path)
        assert hashlib.sha256((node / "checkpoint").read_bytes()).hexdigest() == ref.digest
        assert proxy.breaks_left == 0
        assert proxy.brought < 1.3 * ref.size, "it goes on where it was"
        proxy.breaks_left = 1
        data = bytes(range(256)) * (32 << 10)
        tree = Path(moved(s3, proxy, node, "asset", an_asset(s3, data)))
        assert (tree / "data.bin").read_bytes() == data
        assert proxy.breaks_left == 0
    finally:
        proxy.close()
    remove_tree(tree)

    service.send(DeleteCheckpoint(nonce="n1", name="gone", location=ref.path))
    wait_until(lambda: "<Key>prefix" not in listing(s3))


def test_without_the_store_the_checkpoint_of_the_node_is_used_and_the_reports_go_on(
    service: FakeService, start_agent: StartAgent
) -> None:
    service.checkpoint_store = "nosuchkind://bucket"
    start_agent()
    service.launch(SAVE)
    assert service.wait_for_exit().exit.code == 0
    ref = reference(service)
    assert ref.path is None

    service.launch(CHECK, nonce="n2", attempt=2, checkpoints=(ref,))
    assert service.wait_for_exit("n2").exit.code == 0


def test_a_damaged_checkpoint_is_told_and_the_one_before_is_used(service: FakeService, start_agent: StartAgent) -> None:
    start_agent()
    service.launch(
        "import trials\nwith trials.init() as trial:\n"
        "    for step in (1, 2):\n        trial.save_checkpoint({'step': step}, step=step)"
    )
    assert service.wait_for_exit().exit.code == 0
    older, newer = (r for r in service.spools["n1"] if r["kind"] == "checkpoint")
    path = service.folder() / "checkpoints" / newer["name"]
    path.write_bytes(path.read_bytes()[:-1])
    del service.blobs[newer["digest"]]
    refs = [CheckpointRef(digest=r["digest"], step=r["step"], size=r["size"]) for r in (newer, older)]

    service.launch(
        "import trials\nassert trials.init().restore() == {'step': 1}", nonce="n2", attempt=2, checkpoints=refs
    )

    assert service.wait_for_exit("n2").exit.code == 0
    assert [(r["kind"], r["digest"]) for r in service.spools["n2"]] == [("checkpoint_damaged", newer["digest"])]


ASK = """
import trials
with trials.init() as trial:
    try:
        trial.report(n=trial.restore(from_trial=1, step={step})["n"])
    except trials.CheckpointMissingError as error:
        assert "trial 3 has saved no checkpoint so far" in str(error), error
        raise SystemExit(3)
"""


def test_a_trial_goes_on_from_another_ones_checkpoint(service: FakeService, start_agent: StartAgent) -> None:
    agent = start_agent()
    service.launch("import trials\nwith trials.init() as t:\n    t.save_checkpoint({'n': 5}, step=1)")
    assert service.wait_for_exit().exit.code == 0
    service.others[1] = (reference(service),)

    service.launch(ASK.format(step=None), nonce="n2", number=2)
    assert service.wait_for_exit("n2").exit.code == 0
    assert service.values("n", "n2") == [5.0]

    forget_local_file(service)  # now its bytes come from the service
    service.launch(ASK.format(step=1), nonce="n3", number=3)
    assert service.wait_for_exit("n3").exit.code == 0
    assert [m.step for m in service.of(CheckpointsWanted)] == [None, 1]

    service.launch(ASK.replace("from_trial=1", "from_trial=3").format(step=None), nonce="n4", number=4)
    assert service.wait_for_exit("n4").exit.code == 3
    agent.kill()


def test_a_trial_that_asked_before_its_agent_died_is_answered_by_the_next_one(
    service: FakeService, start_agent: StartAgent
) -> None:
    agent = start_agent()
    service.launch("import trials\nwith trials.init() as t:\n    t.save_checkpoint({'n': 5}, step=1)")
    assert service.wait_for_exit().exit.code == 0
    service.launch(
        "import os, time, trials\ntrial = trials.init()\ntrial.report(ready=1)\n"
        "while not os.path.exists('../go'):\n    time.sleep(0.01)\n"
        + ASK.format(step=None).removeprefix("\nimport trials"),
        nonce="n2",
        number=2,
    )
    wait_until(lambda: service.values("ready", "n2") == [1.0])
    agent.kill()
    (service.folder("n2", number=2) / "go").touch()
    wait_until((service.folder("n2", number=2) / "wanted.json").exists)
    service.others[1] = (reference(service),)
    start_agent()

    assert service.wait_for_exit("n2").exit.code == 0
    assert service.values("n", "n2") == [5.0]


KILLED = """
import numpy, random, trials
with trials.init() as trial:
    state = trial.restore() or {"step": 0, "w": numpy.zeros(1_500_000, numpy.float32)}
    assert (state["w"] == state["step"]).all(), state
    trial.report(restored=state["step"])
    for step in range(state["step"] + 1, 10_000):
        state["step"] = step
        state["w"] += 1
        trial.report(step=step, loss=1.0 / step)
        trial.save_checkpoint(state, step=step)
"""


@pytest.mark.slow
def test_killed_at_any_moment_while_it_writes_it_goes_on_from_a_whole_checkpoint(
    service: FakeService, start_agent: StartAgent
) -> None:
    start_agent()
    chance, refs = random.Random(4), list[CheckpointRef]()
    latest = 0
    for attempt in range(1, 7):
        nonce = f"k{attempt}"
        service.launch(KILLED, nonce=nonce, attempt=attempt, checkpoints=tuple(refs[::-1][:3]))
        some = chance.randint(1, 4)
        wait_until(lambda some=some, nonce=nonce: checkpoints_of(service, nonce) >= some)
        at = chance.randint(0, 20_000_000)
        folder = service.folder(nonce, attempt=attempt) / "checkpoints"
        wait_until(lambda at=at, folder=folder: drafted(folder) >= at % 6_000_000)
        os.kill(started_pid(service, nonce), signal.SIGKILL)
        assert service.wait_for_exit(nonce).exit.signal == signal.SIGKILL
        restored = service.values("restored", nonce)[0]
        assert restored == latest
        found = [r for r in service.spools[nonce] if r["kind"] == CheckpointRecord.kind]
        refs += [CheckpointRef(digest=r["digest"], step=r["step"], size=r["size"]) for r in found]
        latest = refs[-1].step
        reports = [r["step"] for r in service.spools[nonce] if r.get("step") and r["kind"] == "metric"]
        assert max(reports) >= latest  # a checkpoint never knows more than the reports
        service.forget(nonce)
        wait_until(lambda folder=folder: not list(folder.glob(".*")))


def checkpoints_of(service: FakeService, nonce: str) -> int:
    return sum(r["kind"] == CheckpointRecord.kind for r in service.spools.get(nonce, []))


def drafted(folder: Path) -> int:
    """Bytes of the file that is being written; as good as any where there is none at this moment."""
    sizes = [0]
    for path in folder.glob(".*"):
        try:
            sizes.append(path.stat().st_size)
        except OSError:
            continue  # it has got its name
    return max(sizes) or 6_000_000


def started_pid(service: FakeService, nonce: str) -> int:
    from trials.wire.messages import Started

    found: Any = service.wait_for(Started, nonce)
    return int(found.process.pid)
