"""What an attempt wrote goes to a service elsewhere with its end, or before it where it is long."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trials.agent.conversation import Conversation
from trials.agent.moving import joined
from trials.agent.moving.joined import collect_long_logs, short_logs
from trials.wire.attempt import AttemptKey
from trials.wire.encoding import decode, encode
from trials.wire.limits import LOG_INLINE_BYTES
from trials.wire.log_streams import RANK_STREAMS_INLINE
from trials.wire.records import ExitCause, ExitRecord

KEY = AttemptKey(experiment_id="e", number=1, attempt=1)
RECORD = ExitRecord(cause=ExitCause.EXITED, code=0)
BYTES = b"a loss of \xff\x00\n"


def a_held(folder: Path, **streams: bytes) -> Any:
    for name, data in streams.items():
        (folder / f"{name}.log").write_bytes(data)
    return SimpleNamespace(folder=folder, key=KEY, nonce="n")


def test_short_streams_go_with_the_exit_byte_by_byte_and_a_silent_one_is_called_so(tmp_path: Path) -> None:
    assert short_logs(a_held(tmp_path, stdout=BYTES)) == {
        "stdout": base64.b64encode(BYTES).decode(),
        "stderr": "",
    }


@pytest.mark.parametrize(("size", "sent"), [(LOG_INLINE_BYTES, []), (LOG_INLINE_BYTES + 1, ["stdout"])])
def test_what_is_longer_is_sent_before_the_exit(
    size: int, sent: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, found = a_held(tmp_path, stdout=b"x" * size, stderr=b"oh"), list[str]()
    monkeypatch.setattr(joined, "_send_log", lambda _home, _held, stream: found.append(stream))

    asyncio.run(collect_long_logs(SimpleNamespace(), held))  # type: ignore[arg-type]

    assert found == sent
    assert short_logs(held).keys() == {"stdout", "stderr"} - set(sent)


def test_what_ranks_wrote_comes_before_what_all_did_and_that_of_many_before_the_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {f"stdout-{rank}": b"x" for rank in range(10, 10 + RANK_STREAMS_INLINE + 1)}
    held, found = a_held(tmp_path, stdout=BYTES, **many), list[str]()
    (tmp_path / "stdout-x.log").write_text("of the script")
    monkeypatch.setattr(joined, "_send_log", lambda _home, _held, stream: found.append(stream))

    asyncio.run(collect_long_logs(SimpleNamespace(), held))  # type: ignore[arg-type]

    assert found == [max(many)]
    assert [*short_logs(held)] == [*sorted(many)[:-1], "stdout", "stderr"]


@pytest.mark.parametrize("is_joined", [True, False])
def test_the_exit_brings_them_to_a_service_that_shares_no_folder(is_joined: bool, tmp_path: Path) -> None:
    agent: Any = SimpleNamespace(
        held={},
        facts=SimpleNamespace(is_joined=is_joined),
        home=SimpleNamespace(incoming=tmp_path),
        storing=None,
    )
    conversation = Conversation(agent, None, agent_id="a", on_welcome=lambda _: None)  # type: ignore[arg-type]

    told: Any = decode(encode(asyncio.run(conversation._exited(a_held(tmp_path, stderr=BYTES), RECORD, 3))))

    assert (told.last_sequence, told.exit) == (3, RECORD)
    assert told.logs == ({"stdout": "", "stderr": base64.b64encode(BYTES).decode()} if is_joined else {})
