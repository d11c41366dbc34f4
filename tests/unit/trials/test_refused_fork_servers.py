"""Fork servers that do not start: for a while trials do without, and then another one is tried."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trials.agent.forks import servers, serving
from trials.agent.forks.server import Server
from trials.agent.forks.servers import FORK_SERVERS_MAX, REFUSED_S, ForkServers
from trials.agent.home import Home


class Ended(Server):
    """Its process has ended before it was ready, or, with a ``problem``, it has found that it is of no use."""

    def is_alive(self) -> bool:
        return False


@pytest.mark.parametrize(("problem", "starts"), [(None, 2), ("the imports open a GPU", 1)])
def test_one_that_did_not_start_is_tried_again_after_a_while_and_one_of_no_use_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str | None, starts: int
) -> None:
    now, started = [100.0], list[str]()
    home = Home(tmp_path / "home")
    home.make()
    monkeypatch.setattr(servers, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(servers, "send_order", lambda *_: True)

    async def work() -> None:
        forks = ForkServers(home, on_lost=lambda _: None)

        def start(choice: Any) -> Server:
            started.append(choice.key)
            server = Ended(home, number=f"k-{len(started)}", key=choice.key, orders="o", state=home.path / "s")
            forks._servers[choice.key] = server
            if problem is None:
                server.ready.wait = ended  # type: ignore[method-assign]  # it never will be, and is not waited for
            else:
                server.problem = problem
                server.ready.set()
            return server

        async def ended() -> bool:
            raise TimeoutError

        monkeypatch.setattr(forks, "_start", start)
        monkeypatch.setattr(forks, "_up_to_date", lambda _: None)
        choice: Any = SimpleNamespace(key="k")
        for at in (100.0, 100.0 + REFUSED_S - 1, 100.0 + REFUSED_S):
            now[0] = at
            assert isinstance(await forks._server(choice), str)

    asyncio.run(work())
    assert len(started) == starts


class Ready(Server):
    """Its process runs, and has nothing more to import."""

    def is_alive(self) -> bool:
        return True


def test_there_are_so_many_and_the_one_that_was_idle_longest_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, left = Home(tmp_path / "home"), list[str]()
    home.make()

    async def work() -> None:
        forks = ForkServers(home, on_lost=lambda _: None)

        def start(choice: Any) -> Server:
            server = Ready(home, number=choice.key, key=choice.key, orders="o", state=home.path / "s")
            server.used_at = float(choice.key)
            server.given["n"] = home.path
            server.ready.set()
            forks._servers[choice.key] = server
            return server

        def let_go(server: Server) -> None:
            left.append(server.key)
            del forks._servers[server.key]

        monkeypatch.setattr(forks, "_start", start)
        monkeypatch.setattr(forks, "_up_to_date", forks._servers.get)
        monkeypatch.setattr(forks, "_let_go", let_go)
        choices: list[Any] = [SimpleNamespace(key=str(number)) for number in range(FORK_SERVERS_MAX + 1)]
        for choice in choices[:-1]:
            assert isinstance(await forks._server(choice), Server)
        assert "have trials of other experiments" in str(await forks._server(choices[-1]))
        for idle in "21":
            forks._servers[idle].given.clear()
        assert isinstance(await forks._server(choices[-1]), Server)

    asyncio.run(work())
    assert left == ["1"]


def test_a_forked_trial_may_open_as_many_files_as_one_that_is_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has raised its own limit."""
    given: list[Any] = []
    monkeypatch.setattr(resource, "setrlimit", lambda *limit: given.append(limit))
    server: Any = SimpleNamespace(
        _first=SimpleNamespace(show=lambda: None), _open_limit=(64, 128), _pools=SimpleNamespace(give_back=None)
    )
    start: Any = SimpleNamespace(enter=lambda: None)

    with pytest.raises(serving._BecameTrialError):
        serving.ForkServer._leave(server, start)
    assert given == [(resource.RLIMIT_NOFILE, (64, 128))]
