"""serve: the service in this terminal. The one command that imports the server."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec

from trials.wire.log_lines import LogForm
from tuner_service.cli.context import settings_of
from tuner_service.cli.output.exit_codes import ExitCode, say
from tuner_service.config import Settings
from tuner_service.domain.errors import Fault, InputError
from tuner_service.executor_options import OWN_CLUSTER
from tuner_service.local_service import stop_service
from tuner_service.setting_values import without_password

GARBAGE_THRESHOLD = 20_000  # new objects between two looks for garbage; Python's own is 700


def run(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    if arguments.stop:
        if stop_service(settings):
            say("the service has ended")
        else:
            say(f"no service runs on {settings.home}")
        _say_what_runs_on(settings)
        return ExitCode.OK
    settings = with_ray(settings, is_local=arguments.ray_local)
    if arguments.db and (command := without_secret(sys.orig_argv, arguments.db)):
        # A service runs for weeks, and everybody on the machine can read its command line all the while.
        os.execve(sys.executable, command, os.environ | {"TUNER_DB": settings.db})  # noqa: S606  # itself
    # Imports make many objects that live as long as the process; looking for garbage among them delays the start.
    gc.set_threshold(GARBAGE_THRESHOLD, 20, 20)
    from tuner_service.wiring import serve as serve_until_told

    try:
        code: int = serve_until_told(settings, is_standby=arguments.standby)
    except SystemExit as exc:  # a signal ended it, in order
        code = int(exc.code or 0)
    if LogForm(settings.log_format).on(sys.stderr) is LogForm.TEXT:
        _say_what_runs_on(settings)
    elif count := _running_on(settings):  # every line is one of the log there
        logging.getLogger(__name__).info("trials_run_on", extra={"count": count})
    return code


def without_secret(command: Sequence[str], database: str) -> list[str]:
    """The command without the address of the database, where that holds a password; else empty."""
    if without_password(database) == database:
        return []
    named = [place for place, word in enumerate(command) if word in {database, f"--db={database}"}]
    gone = {place for at in named for place in ((at - 1, at) if command[at - 1] == "--db" else (at,))}
    return [word for place, word in enumerate(command) if place not in gone] if gone else []


def with_ray(settings: Settings, *, is_local: bool) -> Settings:
    """With a cluster of its own where that is asked for. InputError where Ray is asked for and not to be had."""
    executor, ray = settings.executor, settings.executor.ray
    if is_local and ray is None:
        message = "--ray-local starts a cluster for the executor ray; add --executor ray"
        raise InputError([Fault(pointer="/ray_local", message=message)])
    if ray is None:
        return settings
    if is_local:
        ray = replace(ray, address=OWN_CLUSTER)
    if find_spec("ray") is None and (not ray.python or ray.address == OWN_CLUSTER):
        message = (
            "the executor ray needs Ray: pip install 'tuner-service[ray]'; or name an interpreter that has it: "
            '--executor \'{"name": "ray", "python": "/path/to/python"}\''
        )
        raise InputError([Fault(pointer="/executor", message=message)])
    return replace(settings, executor=replace(executor, ray=ray))


def _running_on(settings: Settings) -> int:
    from trials.agent.local import list_local

    return sum(attempt.alive for attempt in list_local(settings.home))


def _say_what_runs_on(settings: Settings) -> None:
    count = _running_on(settings)
    if count:
        trials = "1 trial runs" if count == 1 else f"{count} trials run"
        say(f"{trials} on without the service: `tuner ps --local` shows them, `tuner stop --local` stops them,")
        say("and the next `tuner serve` takes them over")
