"""A service that is told to end while its server hangs, as the active one and as one that waits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.builders import EXPERIMENT_ID, a_trial
from tests.contract.stores import StillClock, changes_for
from tests.postgresql import the_server
from tests.postgresql_proxy import Proxy, proxy_of
from tests.waiting import wait_until
from tuner_service.storage.engine import open_store, services_of

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).resolve().parents[3]
STANDBY = """
import sys
from pathlib import Path
from tuner_service.config import Settings
from tuner_service.executor_options import ExecutorOptions
from tuner_service.service import ending
from tuner_service.wiring import serve

ending.LIMIT_S = 1.0
home, database = sys.argv[1:]
settings = Settings(home=Path(home), db=database, executor=ExecutorOptions(has_local=False), log_format="json")
sys.exit(serve(settings, is_standby=True))
"""


@contextmanager
def a_standby(home: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Without an agent; it waits when it is given. What it says is in ``HOME.log``."""
    command = [sys.executable, "-c", STANDBY, str(home), url]
    with home.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log)
    try:
        wait_until(lambda: "standby_waits" in said(home))
        yield process
    finally:
        process.kill()
        process.wait()


def said(home: Path) -> str:
    return home.with_suffix(".log").read_text()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with proxy_of(the_server()) as proxy:
        yield proxy


@pytest.mark.parametrize("has_taken_over", [True, False], ids=["that took over", "that waits"])
def test_a_service_whose_server_hangs_ends_all_the_same_when_it_is_told_to(
    has_taken_over: bool, proxy: Proxy, tmp_path: Path
) -> None:
    url = the_server().filled_database()
    home = tmp_path / "home"
    with closing(open_store(url, StillClock())) as before, a_standby(home, proxy.url(url)) as service:
        before.commit(changes_for(a_trial(number=1)))
        if has_taken_over:
            before.close()
            wait_until(lambda: "listens on" in said(home))
        proxy.flows.clear()
        service.terminate()

        code = service.wait(60)
        assert code == 1 or not has_taken_over  # one that waits asks once a second, and may be told in between
        assert code == 0 or "end_took_too_long" in said(home)
        assert code == 0 or "MainThread: " in said(home), "where it was is said"
    with closing(open_store(url, StillClock())) as after:
        assert after.queries.trial(EXPERIMENT_ID, 1) is not None
        after.commit(changes_for(a_trial(number=9)))
    assert "active" not in {service.role for service in services_of(url)}
