"""Draws one picture and ends: reads ``{"kind", "form", "views"}`` from its input, writes the picture to its output."""

from __future__ import annotations

import json
import os
import resource
import sys

MEMORY_BYTES = 2 << 30  # of addresses
PROCESSOR_S = 60


def main() -> int:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR_S, PROCESSOR_S))
    asked = json.load(sys.stdin)
    told = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints is no part of the picture
    from tuner_service.figures.drawing import draw

    data = draw(asked["kind"], asked["views"], form=asked["form"])
    with os.fdopen(told, "wb") as target:
        target.write(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
