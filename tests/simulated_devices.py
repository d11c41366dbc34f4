"""The simulated devices of a node: a test says what becomes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Gpus:
    """``devices`` as the file has them."""

    def __init__(self, file: Path, devices: list[dict[str, Any]]) -> None:
        self.file, self.devices = file, devices
        self.write()

    def write(self) -> None:
        draft = self.file.with_suffix(".draft")
        draft.write_text(json.dumps({"devices": self.devices}))
        draft.replace(self.file)

    def change(self, number: int, **fields: Any) -> None:
        self.devices[number] |= fields
        self.write()
