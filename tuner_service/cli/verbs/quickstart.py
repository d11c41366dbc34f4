"""quickstart: a first search from its files to its best trial, which says what it does and what comes next."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from tuner_service.cli.context import settings_of
from tuner_service.cli.files.experiment_file import read_body
from tuner_service.cli.files.templates import QUICKSTART, lay_out, typed
from tuner_service.cli.output.exit_codes import ExitCode, say
from tuner_service.cli.output.progress import detached, follow
from tuner_service.cli.starting import new_key, service_and_body
from tuner_service.local_service import require_service


def run(arguments: argparse.Namespace) -> int:
    file = lay_out(QUICKSTART, Path(arguments.folder).expanduser())
    say(f"1. The files of a search are now in {file.parent}:")
    say("     train.py          the training: it asks for its parameters, and reports a loss after every step")
    say("     experiment.yaml   what to search, what is best, and how many trials may run")
    say(f"\n2. Starting it, as `tuner start {shlex.quote(typed(file))}` does: 24 trials, four at a time")
    settings = settings_of(arguments)
    with service_and_body(settings, lambda: read_body(str(file))) as found:
        client, body = found
        view = client.create(body, key=new_key())
        experiment_id = str(view["id"])
        try:
            print(experiment_id, flush=True)
            say(f"\n3. Watching it, as `tuner watch {experiment_id}` does; Ctrl-C would leave it running")
            code = follow(client, experiment_id, find=lambda: require_service(settings), timeout_s=arguments.timeout)
        except KeyboardInterrupt:  # before or after ``follow`` minds it
            return detached(experiment_id)
    if code == ExitCode.OK:
        say(_next(experiment_id))
    return code


def _next(experiment_id: str) -> str:
    return f"""
Each trial was on disk before it ran: killed at any moment, the search goes on where it was. What comes next:
  tuner best {experiment_id}                     the best trial, its command line, and whether going on is worth it
  tuner open                           the page of the service, in a browser
  tuner resume {experiment_id} --trials 48       more of the same
  tuner init my-search                 a folder for a search of your own; `tuner init --help` names its templates
  tuner serve --stop                   end the service; `tuner resume` and `tuner start` start it again"""
