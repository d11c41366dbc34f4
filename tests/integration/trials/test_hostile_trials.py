"""Trials that damage their own files: each fails for itself, or goes on; the agent and all others never notice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.trials.fake_service import AgentProcess, FakeService, is_running, started
from tests.process_table import parent
from tests.waiting import wait_until
from trials.agent.local import list_local
from trials.wire.attempt import AttemptKey
from trials.wire.messages import Forget, LogChunk, ReadLog, RemoveExperiment, Stop

BEFORE = """
import json, os, pathlib, shutil, sys, time, trials
folder = pathlib.Path(os.environ["TUNER_ATTEMPT_DIR"])
def put(name, what):
    path = folder / name
    if path.is_dir() and not path.is_symlink(): shutil.rmtree(path)
    elif os.path.lexists(path): path.unlink()
    if what == "pipe": os.mkfifo(path)
    elif what == "folder": path.mkdir(); (path / "in").touch()
    elif what == "endless": path.symlink_to("/dev/zero")
    elif what == "loop": path.symlink_to(path.name)
    elif what == "nothing": pass
    else: path.write_bytes(what if isinstance(what, bytes) else what.encode())
def lines(*found):
    with (folder / "reports.jsonl").open("ab") as file: file.write(b"\\n".join(found) + b"\\n")
trial = trials.init()
trial.report(step=0, loss=1)
while not (folder / "process.json").exists() or not (folder / "acknowledged.json").exists(): time.sleep(0.01)
"""
FOREVER = "\ntime.sleep(600)\n"
AFTER = "\ntrial.report(step=9, loss=9)\nprint('to the end', flush=True)\n"

# What a trial does that ends it: nothing of what it reports afterwards could be believed.
FATAL = {
    "removes its folder": "shutil.rmtree(folder)",
    "renames its folder": "folder.rename(folder.parent / 'elsewhere')",
    "puts a link in its place": "folder.rename(folder.parent / 'x'); folder.symlink_to(folder.parent / 'x')",
    "puts another folder there": "folder.rename(folder.parent / 'y'); shutil.copytree(folder.parent / 'y', folder)",
    "puts a file there": "folder.rename(folder.parent / 'z'); folder.write_text('')",
    "removes its reports": "put('reports.jsonl', 'nothing')",
    "empties its reports": "os.truncate(folder / 'reports.jsonl', 0)",
    "cuts its reports": "trial.report(loss=2); time.sleep(1); os.truncate(folder / 'reports.jsonl', 70)",
    "writes its reports anew": "put('reports.jsonl', 'x' * 1000)",
    "reports into a pipe": "put('reports.jsonl', 'pipe')",
    "reports endless zeros": "put('reports.jsonl', 'endless')",
    "reports into a folder": "put('reports.jsonl', 'folder')",
    "claims a terabyte of reports": "os.truncate(folder / 'reports.jsonl', 1 << 40)",
    "says that it has ended": "put('exit.json', json.dumps({'cause': 'exited', 'code': 0}))",
    "says that it has ended, with garbage": "put('exit.json', b'\\xff\\x00')",
    "says that it has ended, too deeply": "put('exit.json', '[' * 100000)",
    "says that it has ended, for ever": "put('exit.json', 'endless')",
    "says that it has ended, in a pipe": "put('exit.json', 'pipe')",
    "says that it has ended, in a folder": "put('exit.json', 'folder')",
}
# And what harms nobody: it goes on to its end.
HARMLESS = {
    "claim": "put('claim.json', '{\"pid\": -1}')",
    "claim in place": "(folder / 'claim.json').write_text('of this attempt alone')",
    "no claim": "put('claim.json', 'nothing')",
    "process": "put('process.json', '{\"pid\": 1e999, \"boot_id\": []}')",
    "launch": "put('attempt.json', 'pipe')",
    "acknowledged": "put('acknowledged.json', '{\"sequence\": NaN, \"offset\": 1e999}')",
    "acknowledged pipe": "put('acknowledged.json', 'pipe')",
    "imports": 'put(\'imports.json\', \'{"modules": [1, {}, "a b", "../x"]}\')',
    "imports kind": "put('imports.json', '{\"modules\": 3}')",
    "wanted best": "put('wanted.json', json.dumps({'id': 'r', 'number': 'best', 'step': None}))",
    "wanted huge": "put('wanted.json', json.dumps({'id': 'q', 'number': 10**300, 'step': [1]}))",
    "wanted list": "put('wanted.json', '{\"id\": [1], \"number\": 1}')",
    "wanted path": 'put(\'wanted.json\', \'{"id": "../../x", "number": 1}\')',
    "wanted pipe": "put('wanted.json', 'pipe')",
    "wanted endless": "put('wanted.json', 'endless')",
    "wanted answer": "put('wanted.json', '{\"id\": \"w\", \"number\": 1}'); put('wanted-w', 'pipe')",
    "log pipe": "put('stdout.log', 'pipe'); put('stderr.log', 'endless')",
    "log folder": "put('stdout.log', 'folder'); put('stdout.log.start', 'endless')",
    "work": "shutil.rmtree(folder / 'work')",
    "parameters": "put('parameters.json', 'pipe'); put('parameters-1.json', 'endless')",
    "cooperates": "put('cooperates', 'folder')",
    "draft": "put(f'.process.json.{os.getppid()}.tmp', 'folder'); put(f'.exit.json.{os.getppid()}.tmp', 'pipe')",
    "checkpoints": "put('checkpoints', 'loop')",
    "lines": """lines(b"\\xff\\xfe{\\x00}", b"[" * 60000,
        '{"kind":"cooperates","at":1}'.encode("utf-16")[2:].replace(b"\\n", b""),
        b'{"kind":"metric","step":1,"values":{"a":' + b"9" * 5000 + b'},"at":1,"final":false}', b"\\xed\\xa0\\x80",
        b'{"kind":"cooperates","at":1,"x":"\\xed\\xa0\\x80"}', b"x" * 3_000_000)""",
    "records": """lines(*[json.dumps({"kind": "checkpoint", "step": 1, "name": name, "digest": digest, "size": size,
        "at": 1}).encode() for name in ("../../x", "", "a b", "c.ckpt", "x" * 9999) for digest in ("", "/", "a" * 64)
        for size in (0, 1, 1 << 50)])""",
    "checkpoint pipe": """(folder / "checkpoints").mkdir()
put("checkpoints/a.ckpt", "pipe"); put("checkpoints/b.ckpt", "endless")
lines(*[json.dumps({"kind": "checkpoint", "step": 1, "name": name, "digest": "a" * 64, "size": size, "at": 1}).encode()
        for name in ("a.ckpt", "b.ckpt") for size in (3, 17 << 20)])""",
}


def launch_all(service: FakeService, scripts: dict[str, str], *, isolation: str, first: int) -> dict[str, str]:
    """By what each does, its nonce."""
    nonces = {}
    for number, (name, script) in enumerate(scripts.items(), start=first):
        nonces[name] = f"h{number}"
        service.launch(script, nonce=f"h{number}", number=number, isolation=isolation)
    return nonces


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["fork", "spawn"])
def test_whatever_trials_do_to_their_files_each_fails_for_itself_and_the_others_go_on(
    service: FakeService, start_agent: Callable[..., AgentProcess], home: Path, isolation: str
) -> None:
    start_agent()
    service.launch(
        "import time, trials\n"
        "trial = trials.init()\n"
        "while not trial.should_stop():\n"
        "    trial.report(loss=1); time.sleep(0.05)\n",
        isolation=isolation,
    )
    started(service)
    fatal = launch_all(
        service, {name: BEFORE + text + FOREVER for name, text in FATAL.items()}, isolation=isolation, first=100
    )
    harmless = {name: BEFORE + text + AFTER for name, text in HARMLESS.items()}
    ending = launch_all(service, harmless, isolation=isolation, first=200)

    ends = {name: service.wait_for_exit(nonce, 120).exit for name, nonce in {**fatal, **ending}.items()}

    assert {name: ends[name].cause for name in fatal} == dict.fromkeys(fatal, "files_damaged")
    assert all(ends[name].tail for name in fatal)
    assert {name: (ends[name].cause, ends[name].code, ends[name].tail) for name in ending} == dict.fromkeys(
        ending, ("exited", 0, "to the end")
    )
    assert {name: service.values("loss", nonce)[-1] for name, nonce in ending.items()} == dict.fromkeys(ending, 9)
    assert {name: service.values("loss", nonce)[0] for name, nonce in fatal.items()} == dict.fromkeys(fatal, 1)
    for nonce in (*fatal.values(), *ending.values()):
        service.send(Forget(nonce=nonce))
    service.send(
        ReadLog(
            request_id="r",
            key=AttemptKey(experiment_id="exp", number=1, attempt=1),
            nonce="n1",
            stream="stdout",
            offset=0,
            limit=9,
        )
    )
    service.wait_for(LogChunk)
    before = len(service.values("loss"))
    wait_until(lambda: len(service.values("loss")) > before + 5)
    service.send(
        Stop(key=AttemptKey(experiment_id="exp", number=1, attempt=1), nonce="n1", grace_s=20, reason="stopped")
    )
    assert service.wait_for_exit().exit.cause == "stopped"
    service.send(RemoveExperiment(experiment_id="exp"))
    wait_until(lambda: not (home / "attempts" / "exp").exists())
    assert list_local(home) == []


def test_what_a_trial_writes_into_its_claim_is_in_that_of_no_other(
    service: FakeService, start_agent: Callable[..., AgentProcess]
) -> None:
    agent = start_agent()
    service.launch(BEFORE + "(folder / 'claim.json').write_text('damaged in place')")
    service.wait_for_exit()
    launch = service.launch("import time\ntime.sleep(600)", nonce="n2", number=2)
    process = started(service, "n2").process
    agent.kill()

    start_agent()
    service.send(Stop(key=launch.key, nonce="n2", grace_s=0.5, reason="stopped"))

    assert service.wait_for_exit("n2", 90).exit.cause == "stopped"
    wait_until(lambda: not is_running(process.pid))


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["fork", "spawn"])
def test_a_parent_that_was_stopped_is_continued_and_sees_the_end_of_its_trials(
    service: FakeService, start_agent: Callable[..., AgentProcess], home: Path, isolation: str
) -> None:
    start_agent()
    service.launch(
        "import os, signal, time, trials\n"
        "trial = trials.init()\n"
        "time.sleep(0.5)\n"
        "os.kill(os.getppid(), signal.SIGSTOP)\n"
        "trial.report(loss=1)\n",
        isolation=isolation,
    )

    record = service.wait_for_exit().exit

    assert (record.cause, record.code) == ("exited", 0)
    assert service.values("loss") == [1]
    assert [record["code"] for record in service.spools["n1"] if record["kind"] == "notice"] == ["parent_stopped"]
    assert '"event":"parent_stopped"' in (home / "agent" / "agent.log").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["fork", "spawn"])
def test_a_trial_that_stops_its_parent_again_and_again_can_be_stopped(
    service: FakeService, start_agent: Callable[..., AgentProcess], isolation: str
) -> None:
    start_agent()
    launch = service.launch(
        "import os, signal, time, trials\n"
        "trial = trials.init()\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "trial.report(loss=1)\n"
        "while True: os.kill(os.getppid(), signal.SIGSTOP); time.sleep(0.001)\n",
        isolation=isolation,
    )
    wait_until(lambda: service.values("loss"))

    service.send(Stop(key=launch.key, nonce="n1", grace_s=0.5, reason="stopped"))

    assert service.wait_for_exit().exit.cause in {"stopped", "supervisor_lost"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "harm",
    [
        "shutil.rmtree(folder)",
        "folder.rename(folder.parent / 'elsewhere')",
        "put('claim.json', 'nothing')",
        "put('claim.json', '{}'); put('attempt.json', 'nothing')",
        "(folder / 'attempt.json').write_text('')",
    ],
)
def test_what_a_trial_did_to_its_files_while_there_was_no_agent_is_found_by_the_next_one(
    service: FakeService, start_agent: Callable[..., AgentProcess], tmp_path: Path, harm: str
) -> None:
    agent = start_agent()
    go, gone = tmp_path / "go", tmp_path / "gone"
    script = (
        f"{BEFORE}\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n{harm}\nopen({str(gone)!r}, 'w').close()\n"
    )
    service.launch(script + FOREVER)
    process = started(service).process
    wait_until((service.folder() / "acknowledged.json").exists)
    agent.kill()
    os.kill(parent(process.pid), signal.SIGSTOP)  # else it ends the trial within a second where its folder is gone
    go.touch()
    wait_until(gone.exists)

    start_agent()

    record = service.wait_for_exit().exit
    assert record.cause == "files_damaged"
    assert "removed" in record.tail
    wait_until(lambda: not is_running(process.pid))
