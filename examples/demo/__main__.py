"""A search whose service is killed in the middle: ``make demo``, or ``python -m examples.demo``."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from examples.demo.checks import FINAL, Before, broken_promises
from examples.demo.curves import Curve, Picture, Point, save_png, terminal_plot
from examples.demo.home import DemoHome, is_alive, on_interrupt_raise
from tuner_service.cli.files.experiment_file import read_body
from tuner_service.cli.verbs.open import has_browser
from tuner_service.client import Client
from tuner_service.local_service import find_service

OUTPUT = Path("demo-output").resolve()
EXPERIMENT = Path("examples/digits/experiment.yaml")
ENDED_BEFORE_KILL = 5
RUNNING_AT_KILL = 2
HELD = Path(__file__).with_name("held.py")
FIRST_EPOCHS = 2  # of a trial that is in its training
DEAD_S = 2.0
LOOK_S = 0.2
PATIENCE_S = 600.0  # without any report or end of a trial, on the slowest machine
WHERE_TO_LOOK = "the logs are service.log and agent/agent.log in demo-output/home"

Row = dict[str, Any]


def main() -> int:
    on_interrupt_raise()
    home = DemoHome(OUTPUT / "home")
    story = Story(coloured=sys.stdout.isatty() and "NO_COLOR" not in os.environ)
    began = time.monotonic()
    try:
        home.prepare()
        broken = play(home, story)
    finally:
        home.end()
    if broken:
        story.say("\n" + story.red("This was promised and did not hold:"))
        story.say("".join(f"  - {sentence}\n" for sentence in broken))
        return 1
    story.say(f"\nEverything held; no process is left behind. {time.monotonic() - began:.0f} seconds.")
    if sys.stdout.isatty() and has_browser():
        story.say(
            "\n" + story.bold("Its page") + f", from a service on {shown(home.path)}; `tuner serve --stop` ends it\n"
        )
        home.tuner("open")
    return 0


def play(home: DemoHome, story: Story) -> list[str]:
    """The demo from start to end; every promise that did not hold."""
    began_at = time.time()
    story.say("A search whose service is killed in the middle. It keeps everything in a folder of its own:\n")
    story.say(f"  $ export TUNER_HOME={shown(home.path)}")
    client = home.start()
    experiment_id = begin(client, home, story)
    watch = Watch(story=story, client=client, experiment_id=experiment_id)
    watch.until_time_to_kill(home)
    before, killed_at = kill(home, story, client, experiment_id)
    alive = [pid for pid in before.pids.values() if is_alive(pid)]
    story.step("The same search goes on", f"tuner resume {experiment_id}")
    code = home.tuner("resume", experiment_id)
    resumed_at = time.time()
    found = find_service(home.settings)
    if code != 0 or found is None:
        return [f"`tuner resume` ended with code {code}"]
    story.say("")
    watch.client = client = found
    try:
        story.say(f"Adopted without a break: processes {', '.join(map(str, alive)) or 'none'}\n")
        home.let_go()
        watch.until_ended()
        experiment = client.experiment(experiment_id)
        trials = client.trials(experiment_id)
        for trial in trials:
            trial["metrics"] = client.metrics(experiment_id, trial["number"])
        attempts = {number: client.trial(experiment_id, number)["attempt_details"] for number in before.pids}
        picture = Picture(
            curves=[curve_of(trial) for trial in trials],
            best=experiment["best"]["number"],
            dead=(killed_at, resumed_at),
            began_at=began_at,
        )
        show(home, story, picture, experiment)
        if not alive:
            return ["no trial was left to adopt: all ended while the service was dead"]
        return list(broken_promises(before, experiment, trials, attempts))
    finally:
        client.close()


# ── the acts ────────────────────────────────────────────────────────────────────────────────────
def begin(client: Client, home: DemoHome, story: Story) -> str:
    """Start the experiment by one REST call; its id."""
    body = body_of(home)
    request = OUTPUT / "experiment.json"
    request.write_text(json.dumps(body, indent=1), encoding="utf-8")
    budget = body["budget"]
    story.step(
        "One REST call starts the search",
        f"curl {client.url}/api/v1/experiments -H 'Content-Type: application/json' \\\n"
        f'      -H "Authorization: Bearer $(cat {shown(home.path)}/token)" -d @{shown(request)}',
    )
    story.say(f"(`tuner start {EXPERIMENT}` does the same.)\n")
    view: Row = client.create(body, key="demo")
    story.say(f"Its page, while this goes on: {client.url}/experiments/{view['id']} (sign in with `tuner open`)\n")
    story.say(f"Experiment {view['id']}: {budget['trials']} trials of a small PyTorch network on 1,797 handwritten")
    story.say(f"digits, {budget['parallel']} at a time; TPE proposes, the median rule stops the hopeless.\n")
    return str(view["id"])


def body_of(home: DemoHome) -> Row:
    """The experiment as its file has it, but that the demo can hold its trials before their end."""
    body = read_body(str(EXPERIMENT))
    trial = body["trial"]
    held = {"path": HELD.name, "content": HELD.read_text(encoding="utf-8")}
    code = {"files": [*trial["code"]["files"], held]}
    environment = {"DEMO_HOLD": str(home.hold_file)}
    return {**body, "trial": {**trial, "code": code, "command": f"python {HELD.name}", "environment": environment}}


def kill(home: DemoHome, story: Story, client: Client, experiment_id: str) -> tuple[Before, float]:
    trials = client.trials(experiment_id)
    running = client.experiment(experiment_id)["running"]
    client.close()
    killed_at = time.time()
    pid = home.kill()
    before = Before(trials=trials, pids={a["number"]: a["pid"] for a in running if a["pid"] is not None})
    story.step(story.red(f"Now the service, process {pid}, is killed with SIGKILL"), f"kill -9 {pid}")
    first = {number: reports_in(home, experiment_id, number) for number in before.pids}
    time.sleep(DEAD_S)
    story.say(f"Nobody listens. {DEAD_S:g} seconds later:\n")
    for number, trial_pid in before.pids.items():
        state = "is alive" if is_alive(trial_pid) else "has ended by itself"
        count = reports_in(home, experiment_id, number)
        story.say(f"  trial {number:2}, process {trial_pid}, {state}: {first[number]} → {count} records in its file")
    story.say("\nTrials need no service: what they report waits in their files.")
    return before, killed_at


def reports_in(home: DemoHome, experiment_id: str, number: int) -> int:
    """Lines in the append-only file of the trial's attempt."""
    files = (home.path / "attempts" / experiment_id / str(number)).glob("*/reports.jsonl")
    return sum(file.read_bytes().count(b"\n") for file in files)


def show(home: DemoHome, story: Story, picture: Picture, experiment: Row) -> None:
    story.step("The best parameters", f"tuner best {experiment['id']}")
    home.tuner("best", experiment["id"])
    story.say("\n" + story.bold("Accuracy of every trial") + "\n")
    story.say(terminal_plot(picture, coloured=story.coloured))
    png = OUTPUT / "accuracy.png"
    save_png(picture, png)
    story.say(f"\nThe same as a picture: {shown(png)}")
    story.say("\n" + story.bold("To look further") + "\n")
    for command, why in (
        (". .venv/bin/activate", "the `tuner` command"),
        (f"export TUNER_HOME={shown(home.path)}", "the folder of this search"),
        ("tuner open", "all of it in a browser; starts the service again"),
        ("tuner resume @last --trials 24 --wait", "four more trials, live on the page"),
        ("tuner trials @last", "every trial"),
        (f"tuner show @last/{picture.best}", "one trial and its processes"),
        (f"tuner logs @last/{picture.best}", "what it printed"),
        ("tuner serve --stop", "end the service"),
        (f"sqlite3 {shown(home.path)}/tuner.db .tables", "everything is in this one file"),
    ):
        story.say(f"  {command:<42} # {why}")


# ── telling ─────────────────────────────────────────────────────────────────────────────────────
@dataclass
class Story:
    coloured: bool
    _steps: int = 0

    def say(self, text: str) -> None:
        print(("\r\x1b[K" if self.coloured else "") + text, flush=True)

    def live(self, text: str) -> None:
        """A line that the next one replaces; terminals only."""
        if self.coloured:
            width = shutil.get_terminal_size().columns - 1
            print("\r\x1b[K" + text[:width], end="", flush=True)

    def step(self, title: str, command: str) -> None:
        self._steps += 1
        self.say(f"\n{self.bold(f'{self._steps}. {title}')}\n\n  $ {command}\n")

    def bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self.coloured else text

    def red(self, text: str) -> str:
        return f"\x1b[1;31m{text}\x1b[0m" if self.coloured else text


@dataclass
class Watch:
    """Follows the experiment, saying what begins and ends."""

    story: Story
    client: Client
    experiment_id: str
    _told: dict[int, str] = field(default_factory=dict)

    @property
    def _ended(self) -> int:
        return len(self._told)

    def until_time_to_kill(self, home: DemoHome) -> None:
        """Until enough trials have ended, and enough others are in their training and cannot end by themselves."""
        for view in self._following():
            if view["status"] != "running":
                raise RuntimeError(f"the experiment is {view['status']} already: {view['message']}")
            if self._ended < ENDED_BEFORE_KILL:
                continue
            if not home.hold_file.exists():
                home.hold()  # what was near its end may end yet: looked at once more
            elif len(in_training(view["running"])) >= min(RUNNING_AT_KILL, len(view["running"])) > 0:
                self.story.live("")
                return

    def until_ended(self) -> None:
        for view in self._following():
            if view["status"] not in {"running", "stopping"}:
                return

    def _following(self) -> Iterator[Row]:
        """The experiment as it is, again and again. TimeoutError when nothing at all happens any more."""
        seen: Any = None
        moved = time.monotonic()
        while time.monotonic() < moved + PATIENCE_S:
            trials = self._look()
            view = self.client.experiment(self.experiment_id)
            self.story.live(running_line(view["running"]))
            now = (view["status"], [(trial["status"], trial["last"], trial["attempts"]) for trial in trials])
            if now != seen:
                seen, moved = now, time.monotonic()
            yield view
            time.sleep(LOOK_S)
        raise TimeoutError(f"nothing has happened for {PATIENCE_S:g} s; {WHERE_TO_LOOK}")

    def _look(self) -> list[Row]:
        trials = self.client.trials(self.experiment_id)
        for trial in trials:
            number, status = trial["number"], trial["status"]
            if status in FINAL and self._told.get(number) != status:
                self._told[number] = status
                self.story.say(f"  trial {number:2}: {self._ending(trial)}")
        return trials

    @staticmethod
    def _ending(trial: Row) -> str:
        parameters = trial["parameters"]
        what = f"{parameters['optimizer']}, lr {parameters['lr']:.2g}, {parameters['channels']} channels"
        match trial["status"]:
            case "succeeded":
                return f"accuracy {trial['value']:.1%}  ({what})"
            case "early_stopped":
                return f"stopped early at epoch {trial['last']['step']} with {trial['value']:.1%}  ({what})"
            case status:
                return f"{status}: {trial['message']}"


def in_training(running: Sequence[Row]) -> list[Row]:
    """Those with a process and some epochs behind them."""
    return [a for a in running if a["pid"] is not None and a["step"] is not None and a["step"] >= FIRST_EPOCHS]


def running_line(running: Sequence[Row]) -> str:
    shown_trials = [
        f"trial {a['number']} " + ("starts" if a["step"] is None else f"epoch {a['step']}, {a['value']:.0%}")
        for a in running
    ]
    return "  running: " + " · ".join(shown_trials)


def curve_of(trial: Row) -> Curve:
    points = [
        Point(epoch=metric["step"], accuracy=metric["values"]["accuracy"], at=seconds(metric["at"]))
        for metric in trial["metrics"]
        if metric["step"] is not None
    ]
    return Curve(
        number=trial["number"],
        status=trial["status"],
        points=points,
        started_at=seconds(trial["started_at"]),
        ended_at=seconds(trial["ended_at"]),
    )


def seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()


def shown(path: Path) -> str:
    """As short as it can be from here."""
    return os.path.relpath(path)


if __name__ == "__main__":
    sys.exit(main())
