"""What the demo asks of the service; git is asked where its code comes from."""

from __future__ import annotations

from pathlib import Path

from examples.demo import __main__ as demo
from examples.demo.home import DemoHome


def test_the_trials_of_the_demo_are_told_where_they_are_held(tmp_path: Path) -> None:
    home = DemoHome(tmp_path)
    body = demo.body_of(home)

    assert body["trial"]["command"] == "python held.py"
    assert {file["path"] for file in body["trial"]["code"]["files"]} >= {"held.py", "train.py"}
    assert body["trial"]["environment"] == {"DEMO_HOLD": str(home.hold_file)}
    home.hold()
    home.let_go()
    assert not home.hold_file.exists()
