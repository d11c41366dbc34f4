"""config show: the settings, and where each came from."""

from __future__ import annotations

import argparse

from tuner_service.cli.context import settings_of
from tuner_service.cli.output.exit_codes import ExitCode
from tuner_service.cli.output.tables import Column, Row, print_rows
from tuner_service.config import SETTINGS
from tuner_service.setting_values import NEVER, without_password

HIDDEN = "(set)"
ADDRESSES = frozenset({"db", "url", "checkpoint_store", "asset_store"})


def run(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    rows: list[Row] = []
    for setting in SETTINGS:
        value = getattr(settings, setting.name)
        text = ",".join(value) if isinstance(value, tuple) else NEVER if value is None else str(value)
        if setting.name == "token" and text:
            text = HIDDEN
        elif setting.name in ADDRESSES:
            text = without_password(text)
        row: Row = {"id": setting.name, "value": text}
        rows.append(row | ({"origin": settings.origins[setting.name]} if arguments.origin else {}))
    columns = [
        Column(title="SETTING", text=lambda r: r["id"]),
        Column(title="VALUE", text=lambda r: r["value"], width=1_000),
    ]
    if arguments.origin:
        columns.append(Column(title="ORIGIN", text=lambda r: r["origin"], width=1_000))
    print_rows(rows, output=arguments.output, columns=columns)
    return ExitCode.OK
