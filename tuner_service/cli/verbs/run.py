"""run: starts an experiment and waits for its end."""

from __future__ import annotations

import argparse

from tuner_service.cli.context import settings_of
from tuner_service.cli.files.experiment_file import check_readable
from tuner_service.cli.files.inputs import filled_in
from tuner_service.cli.output.progress import detached, follow
from tuner_service.cli.starting import body_of, new_key, say_what_is_not_set, service_and_body
from tuner_service.local_service import require_service


def run(arguments: argparse.Namespace) -> int:
    check_readable(arguments.file)
    settings = settings_of(arguments)
    with service_and_body(settings, lambda: body_of(arguments)) as found:
        client, body = found
        body = filled_in(client, body)
        view = client.create(body, key=new_key())
        say_what_is_not_set(view)
        try:
            print(view["id"], flush=True)
            return follow(client, view["id"], find=lambda: require_service(settings), timeout_s=arguments.timeout)
        except KeyboardInterrupt:  # before or after ``follow`` minds it
            return detached(view["id"])
