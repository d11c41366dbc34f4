"""Weights published to others, and priorities given back: whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trials.data import Reference
from trials.learner import (
    Learner,
    LoadWeights,
    PriorityReader,
    PriorityWriter,
    PublishWeights,
    WeightsReader,
    When,
    publish_weights,
    report_priorities,
)
from trials.learner.priorities import LINE_LIMIT_BYTES, SamplePriorities
from trials.learner.weights import NEWEST, WeightsUnreadableError


class Weight:
    def __init__(self, value: float = 0.0) -> None:
        self.value = value

    def step(self, batch: float) -> dict[str, float]:
        self.value += batch
        return {"loss": self.value}

    def state_dict(self) -> dict[str, float]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.value = state["value"]


class NoTrial:
    """Alone, and without any checkpoint."""

    def restore(self) -> None:
        return None

    def report(self, values: Any, *, step: int) -> None: ...

    def save_checkpoint(self, state: Any, *, step: int) -> None: ...

    def should_stop(self) -> bool:
        return False


def a_learner(model: Weight, *hooks: Any) -> Learner:
    return Learner(NoTrial(), step=model.step, batches=[1.0], state={"model": model}, hooks=hooks)


@pytest.mark.parametrize("state", [{"w": [1.5, 2.0]}, b"bytes of one's own"])
def test_what_was_published_is_read_and_only_once(tmp_path: Path, state: Any) -> None:
    reader = WeightsReader(tmp_path / "policy")
    assert reader.poll() is None

    published = publish_weights(state, version=3, to=[tmp_path / "policy"])

    assert reader.poll() == state
    assert reader.seen == published
    assert reader.poll() is None
    assert hashlib.sha256((tmp_path / "policy" / published.file).read_bytes()).hexdigest() == published.digest


def test_tensors_come_back_as_they_were(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    state = {"layer.weight": torch.arange(6.0).reshape(2, 3), "steps": 3}

    publish_weights(state, version=1, to=[tmp_path])

    found = WeightsReader(tmp_path).poll()
    assert torch.equal(found["layer.weight"], state["layer.weight"])
    assert found["steps"] == 3


def test_what_could_not_be_loaded_safely_is_refused_when_it_is_published(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with pytest.raises(TypeError, match="cannot be loaded without executing code"):
        publish_weights({"model": Weight()}, version=1, to=[tmp_path / "p"])
    assert not (tmp_path / "p").exists()


def test_a_place_keeps_the_newest_few_versions(tmp_path: Path) -> None:
    for version in range(1, 6):
        publish_weights({"v": version}, version=version, to=[tmp_path], keep=2)

    assert sorted(int(p.name.split("-")[1]) for p in tmp_path.glob("weights-*")) == [4, 5]
    assert WeightsReader(tmp_path).poll() == {"v": 5}


def test_a_version_published_again_after_a_restart_is_the_newest(tmp_path: Path) -> None:
    reader = WeightsReader(tmp_path)
    for version in (10, 20, 30):
        publish_weights({"v": version}, version=version, to=[tmp_path])
    assert reader.poll() == {"v": 30}

    publish_weights({"v": "fifteen"}, version=15, to=[tmp_path], keep=2)

    assert reader.poll() == {"v": "fifteen"}


def test_several_places_get_the_same_and_one_that_fails_keeps_no_other_from_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    places = [tmp_path / "file", tmp_path / "a", f"file://{tmp_path}/b"]

    with pytest.raises(OSError, match=r"version 7 was not published to .*/file: "):
        publish_weights({"v": 7}, version=7, to=places)

    assert WeightsReader(tmp_path / "a").poll() == WeightsReader(tmp_path / "b").poll() == {"v": 7}


def test_urls_of_fsspec_are_places(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    url = f"memory://{tmp_path.name}-{os.getpid()}/policy"
    reader = WeightsReader(url)
    assert reader.poll() is None
    for version in range(5):
        publish_weights({"v": version}, version=version, to=[url], keep=2)

    assert reader.poll() == {"v": 4}
    assert reader.poll() is None


def test_weights_that_do_not_have_their_digest_are_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = publish_weights({"v": 1}, version=1, to=[tmp_path])
    (tmp_path / published.file).write_bytes(b'{"v": 2}')
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)

    with pytest.raises(WeightsUnreadableError, match="names weights that are missing or damaged"):
        WeightsReader(tmp_path).poll()
    assert pauses


@pytest.mark.parametrize("name", [NEWEST, "weights-"])
def test_a_file_that_another_machine_removes_while_it_is_read_is_one_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As NFS says it."""
    publish_weights({"v": 1}, version=1, to=[tmp_path])
    read, stale = Path.read_bytes, [True]

    def read_once_removed(path: Path) -> bytes:
        if path.name.startswith(name) and stale:
            stale.clear()
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", read_once_removed)
    monkeypatch.setattr("time.sleep", lambda _: None)
    reader = WeightsReader(tmp_path)

    assert [found for found in (reader.poll(), reader.poll()) if found is not None] == [{"v": 1}]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', "[" * 100_000])
def test_a_name_that_is_just_being_written_is_nothing_new(tmp_path: Path, text: str) -> None:
    (tmp_path / NEWEST).write_text(text)

    assert WeightsReader(tmp_path).poll() is None


def test_a_reader_that_waits_in_vain_says_so(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match=r"nothing new was published to .* within 0 s"):
        WeightsReader(tmp_path).wait(0)


def test_the_hook_publishes_before_the_first_iteration_and_when_it_is_due(tmp_path: Path) -> None:
    places = [tmp_path / "a", tmp_path / "b"]
    a_learner(Weight(), PublishWeights(places, when=When(every_steps=2, on_stop=True), keep=9)).run(steps=5)

    for place in places:
        assert sorted(int(p.name.split("-")[1]) for p in place.glob("weights-*")) == [0, 2, 4, 5]
        assert WeightsReader(place).poll() == {"value": 5.0}


def test_left_out_weights_are_published_and_looked_for_every_hundred_iterations_and_published_at_the_end(
    tmp_path: Path,
) -> None:
    a_learner(Weight(), PublishWeights(tmp_path, keep=9)).run(steps=250)
    assert sorted(int(p.name.split("-")[1]) for p in tmp_path.glob("weights-*")) == [0, 100, 200, 250]

    follower = Weight()
    a_learner(follower, LoadWeights(tmp_path)).run(steps=1)
    assert follower.value == 251.0


def test_only_rank_0_publishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    a_learner(Weight(), PublishWeights(tmp_path / "p", when=When(every_steps=1))).run(steps=2)

    assert not (tmp_path / "p").exists()


def test_a_learner_takes_a_policy_from_a_place_and_gives_its_own_to_another(tmp_path: Path) -> None:
    given, back = tmp_path / "given", tmp_path / "back"
    publish_weights({"value": 100.0}, version=0, to=[given])
    model = Weight()

    def weights() -> dict[str, float]:
        if model.value == 102.0:
            publish_weights({"value": 1000.0}, version=1, to=[given])
        return model.state_dict()

    a_learner(
        model,
        LoadWeights(given, when=When(every_steps=1), first_within_s=1),
        PublishWeights(back, when=When(every_steps=1), weights=weights),
    ).run(steps=4)

    assert WeightsReader(back).poll() == {"value": 1001.0}


def test_priorities_are_read_on_from_where_the_last_look_ended(tmp_path: Path) -> None:
    writer, reader = PriorityWriter(tmp_path / "p.jsonl"), PriorityReader(tmp_path / "p.jsonl")
    assert list(reader.read()) == []

    report_priorities(writer, ["a", "b"], [0.5, 1], step=3)
    assert list(reader.read()) == [SamplePriorities(step=3, samples=("a", "b"), priorities=(0.5, 1.0))]
    report_priorities(writer, [7], [0], step=4)
    with (tmp_path / "p.jsonl").open("a") as file:
        file.write('{"step": 5, "samp')
    assert [found.step for found in reader.read()] == [4]
    with (tmp_path / "p.jsonl").open("a") as file:
        file.write(f'\nnonsense\n{"[" * 100_000}\n{{"step": 6, "samples": [], "priorities": []}}\n')
    assert [found.step for found in reader.read()] == [6]


def test_the_file_of_priorities_is_bounded_and_its_reader_misses_nothing_in_two_files(tmp_path: Path) -> None:
    writer, reader = PriorityWriter(tmp_path / "p.jsonl", limit=200), PriorityReader(tmp_path / "p.jsonl")
    steps: list[int] = []
    for step in range(40):
        report_priorities(writer, [step], [1.0], step=step)
        if step % 3 == 0:
            steps += [found.step for found in reader.read()]

    assert steps == list(range(40))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 400
    assert len(list(tmp_path.iterdir())) == 2


def test_a_reader_of_priorities_that_is_given_up_halfway_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    reader = PriorityReader(path)
    for step in range(4):
        report_priorities(PriorityWriter(path), [step], [1.0], step=step)

    assert [next(reader.read()).step for _ in range(2)] == [0, 1]
    report_priorities(PriorityWriter(path, limit=1), [4], [1.0], step=4)
    assert next(reader.read()).step == 2
    assert [found.step for found in reader.read()] == [3, 4]


def test_a_reader_of_priorities_whose_file_was_dropped_goes_on_with_the_one_after_it(tmp_path: Path) -> None:
    """Not with the newest, nor in the middle of one that has the inode of what was dropped."""
    path = tmp_path / "p.jsonl"
    writer, reader = PriorityWriter(path, limit=1), PriorityReader(path)  # one report in each file
    report_priorities(writer, [0], [1.0], step=0)
    assert [found.step for found in reader.read()] == [0]
    report_priorities(writer, [1], [1.0], step=1)
    report_priorities(writer, [2], [1.0], step=2)

    assert [found.step for found in reader.read()] == [1, 2]


def once_opened(act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens a file next finds, when it has it, that ``act`` was done meanwhile."""
    opened = Path.open

    def open_then_act(self: Path, *arguments: Any, **options: Any) -> Any:
        monkeypatch.setattr(Path, "open", opened)
        file = self.open(*arguments, **options)
        act()
        return file

    monkeypatch.setattr(Path, "open", open_then_act)


def test_two_processes_that_find_the_file_of_priorities_full_move_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.jsonl"
    reader = PriorityReader(path)
    report_priorities(PriorityWriter(path), ["x" * 200], [1.0], step=0)
    assert [found.step for found in reader.read()] == [0]
    report_priorities(PriorityWriter(path), ["x" * 200], [1.0], step=1)

    def another_is_quicker() -> None:
        report_priorities(PriorityWriter(path, limit=200), [2], [1.0], step=2)

    once_opened(another_is_quicker, monkeypatch)
    report_priorities(PriorityWriter(path, limit=200), [3], [1.0], step=3)

    assert [found.step for found in reader.read()] == [1, 2, 3]


def test_no_priorities_go_into_a_file_that_was_moved_away_since_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reader is through with it."""
    path = tmp_path / "p.jsonl"
    reader = PriorityReader(path)
    report_priorities(PriorityWriter(path), ["x" * 200], [1.0], step=0)
    steps = [found.step for found in reader.read()]

    def another_moves_it() -> None:
        report_priorities(PriorityWriter(path, limit=200), [1], [1.0], step=1)
        steps.extend(found.step for found in reader.read())

    once_opened(another_moves_it, monkeypatch)
    report_priorities(PriorityWriter(path), [2], [1.0], step=2)

    assert steps + [found.step for found in reader.read()] == [0, 1, 2]


def test_a_file_of_priorities_is_moved_away_once_nobody_writes_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flock = tmp_path / "p.jsonl", fcntl.flock
    reader = PriorityReader(path)
    report_priorities(PriorityWriter(path), ["x" * 200], [1.0], step=0)
    steps = [found.step for found in reader.read()]
    another = path.open("a+b", buffering=0)
    flock(another, fcntl.LOCK_SH)

    def wait_for_another(file: Any, how: int) -> None:
        if how == fcntl.LOCK_EX and not another.closed:
            with pytest.raises(BlockingIOError):
                flock(file, how | fcntl.LOCK_NB)
            assert path.stat().st_size
            another.write(b'{"step": 1, "samples": [], "priorities": []}\n')
            another.close()
        flock(file, how)

    monkeypatch.setattr("trials.learner.priorities.fcntl.flock", wait_for_another)
    report_priorities(PriorityWriter(path, limit=200), [2], [1.0], step=2)

    assert steps + [found.step for found in reader.read()] == [0, 1, 2]


def test_priorities_that_were_written_half_take_none_of_the_next_ones_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.jsonl"

    class Full(io.FileIO):
        def write(self, data: Any, /) -> int:
            return super().write(data[:10])

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", lambda self, mode, **_: Full(self, mode.replace("b", "")))
        with pytest.raises(OSError, match="these priorities were written half"):
            report_priorities(PriorityWriter(path), ["lost"], [1.0], step=1)
    report_priorities(PriorityWriter(path), ["kept"], [1.0], step=2)
    report_priorities(PriorityWriter(path), ["kept"], [1.0], step=3)

    assert [found.step for found in PriorityReader(path).read()] == [2, 3]
    assert path.read_bytes().count(b"\n") == 3


def test_a_report_of_priorities_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="report fewer"):
        report_priorities(PriorityWriter(tmp_path / "p"), ["x" * LINE_LIMIT_BYTES], [1.0])


def test_a_learner_reports_to_the_file_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_PRIORITIES", str(tmp_path / "p.jsonl"))
    model = Weight()
    learner = a_learner(model)
    learner.run(steps=2)
    learner.report_priorities([5], [0.25])

    line = json.loads((tmp_path / "p.jsonl").read_text())
    assert line == {"step": 2, "samples": [5], "priorities": [0.25]}


# ── compressed ──────────────────────────────────────────────────────────────────────────────────
@pytest.fixture(params=["zlib", "lz4"])
def compressor(request: pytest.FixtureRequest) -> str:
    if request.param == "lz4":
        pytest.importorskip("lz4")
    return str(request.param)


def test_compressed_weights_come_back_and_take_less_room(tmp_path: Path, compressor: str) -> None:
    state = {"w": [0.25] * 20_000}
    plain = publish_weights(state, version=1, to=[tmp_path / "plain"])
    packed = publish_weights(state, version=1, to=[tmp_path / "packed"], compressor=compressor)

    assert WeightsReader(tmp_path / "packed").poll() == state
    assert packed.size < plain.size / 10
    assert packed.size == (tmp_path / "packed" / packed.file).stat().st_size


def test_a_place_may_change_its_compressor(tmp_path: Path) -> None:
    reader = WeightsReader(tmp_path)
    for version, name in enumerate(("none", "zlib", "none")):
        publish_weights({"version": version}, version=version, to=[tmp_path], compressor=name)
        assert reader.poll() == {"version": version}


def test_without_lz4_whoever_wants_it_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lz4")
    publish_weights({"w": 1}, version=1, to=[tmp_path], compressor="lz4")
    for name in ("lz4", "lz4.frame", "lz4.block"):
        monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(ImportError, match=r"tuner-service\[lz4\]"):
        publish_weights({"w": 2}, version=2, to=[tmp_path], compressor="lz4")
    with pytest.raises(ImportError, match=r"tuner-service\[lz4\]"):
        PublishWeights(tmp_path, compressor="lz4")
    with pytest.raises(ImportError, match=r"tuner-service\[lz4\]"):
        WeightsReader(tmp_path).poll()
    publish_weights({"w": 3}, version=3, to=[tmp_path], compressor="zlib")
    assert WeightsReader(tmp_path).poll() == {"w": 3}


def test_a_compressor_nobody_knows_is_refused_before_anything_is_published(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'none', 'zlib' or 'lz4', not 'rar'"):
        publish_weights({"w": 1}, version=1, to=[tmp_path], compressor="rar")
    assert list(tmp_path.iterdir()) == []


def test_samples_of_actors_may_be_a_frame_or_a_block_of_lz4(tmp_path: Path) -> None:
    frame, block = pytest.importorskip("lz4.frame"), pytest.importorskip("lz4.block")
    for name, data in (("frame", frame.compress(b"[1, 2]")), ("block", block.compress(b"[1, 2]"))):
        (tmp_path / name).write_bytes(data)
        assert Reference(path=tmp_path / name, compressor="lz4", read=json.loads)() == [1, 2]
