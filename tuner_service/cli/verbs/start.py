"""start: an experiment begins."""

from __future__ import annotations

import argparse

from tuner_service.cli.context import settings_of
from tuner_service.cli.files.experiment_file import check_readable
from tuner_service.cli.files.inputs import filled_in
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.tables import Row, clip, parameters_text, print_object
from tuner_service.cli.starting import body_of, new_key, say_what_is_not_set, service_and_body

SAMPLE_WIDTH = 10_000  # of a draw, which is one line whatever it holds


def run(arguments: argparse.Namespace) -> int:
    check_readable(arguments.file)
    if arguments.key == "":  # whoever repeats it so would start one each time
        raise CommandError("--key is empty; is a variable of your shell not set?", ExitCode.USAGE)
    with service_and_body(settings_of(arguments), lambda: body_of(arguments)) as found:
        client, body = found
        body = filled_in(client, body, dry_run=arguments.dry_run)
        if arguments.dry_run:
            print_object(client.create(body, dry_run=True), output=arguments.output, text=_dry_run_text)
            return ExitCode.OK
        view = client.create(body, key=arguments.key or new_key())
        print_object(view, output=arguments.output, text=lambda row: f"{row['id']}\n")
        if arguments.output == "table":
            say(f"started {view['name']}; follow it with: tuner watch {view['id']}")
        say_what_is_not_set(view)
    return ExitCode.OK


def _dry_run_text(answer: Row) -> str:
    import yaml

    text = yaml.safe_dump(answer["experiment"], sort_keys=False, allow_unicode=True)
    samples = "".join(f"  {clip(parameters_text(sample), SAMPLE_WIDTH)}\n" for sample in answer["samples"])
    if not answer["experiment"]["search_space"]:
        return f"{text}\n# no search space: one training\n"
    size = "infinite" if answer["space_size"] == "Infinity" else f"{answer['space_size']} points"
    return f"{text}\n# the search space is {size}; some of it:\n{samples}"
