"""init: a folder with a search that runs as it is, to begin from."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from tuner_service.cli.files.templates import TEMPLATES, lay_out, typed
from tuner_service.cli.output.exit_codes import ExitCode, say


def run(arguments: argparse.Namespace) -> int:
    template = TEMPLATES[arguments.template]
    file = lay_out(arguments.template, Path(arguments.name).expanduser())
    print(typed(file))
    say(f"{template.about}: {', '.join(template.files)} in {file.parent}")
    if template.install:
        say(f"it needs more than the service does{', which is not there yet' * template.missing}: {template.install}")
    say(f"try it:   tuner run {shlex.quote(typed(file))}")
    say(f"then put your own training into {file.parent / template.files[0]}, and its parameters into {file.name}")
    return ExitCode.OK
