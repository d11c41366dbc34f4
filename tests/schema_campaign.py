"""Schemathesis against the API: what the schema promises, the service keeps.

    python -m tests.schema_campaign [--examples 300] [--seed 1]

Left out is one check. ``positive_data_acceptance`` wants every body that fits the schema to be taken, and no schema
says what rules over several fields say: either a command or an entry point, low below high, options that a named
algorithm has, cursors that a page gave. Such a body is answered with 422 and pointers, which the other checks look at.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.api_server import serving
from tests.api_service import ADMIN_TOKEN, ApiService

LEFT_OUT = "positive_data_acceptance"
# Ids are opaque: without these it would only ever hear that there is no such experiment.
CONFIG = """
[parameters]
"path.experiment_id" = "{standing}"
"path.number" = {number}
"query.timeout" = 0.1

[[operations]]
include-name = "DELETE /api/v1/experiments/{{experiment_id}}"
parameters = {{ "path.experiment_id" = "{ended}" }}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=300, help="of each operation")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        done = schemathesis(Path(folder), examples=arguments.examples, seed=arguments.seed)
    print(done.stdout)
    return done.returncode


def schemathesis(home: Path, *, examples: int, seed: int) -> subprocess.CompletedProcess[str]:
    """Its verdict on a service with one experiment, in ``home``."""
    with serving(home) as api:
        config = home / "schemathesis.toml"
        config.write_text(CONFIG.format(**standing(api), ended=ended(api)))
        url = json.loads((home / "service.json").read_text())["url"]
        command = [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "--no-color"),
            *("run", f"{url}/openapi.json"),
            *("--header", f"Authorization: Bearer {ADMIN_TOKEN}", "--checks", "all", "--exclude-checks", LEFT_OUT),
            *("--max-examples", str(examples), "--seed", str(seed), "--workers", "1", "--suppress-health-check", "all"),
        ]
        return subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)


def standing(api: ApiService) -> dict[str, Any]:
    """An experiment with a trial of its own."""
    experiment_id = api.create()
    added = api.client.post(f"/api/v1/experiments/{experiment_id}/trials", json={"parameters": {"lr": 0.01}})
    assert added.status_code == 201, added.text
    return {"standing": experiment_id, "number": added.json()["number"]}


def ended(api: ApiService) -> str:
    experiment_id = api.create()
    assert api.client.post(f"/api/v1/experiments/{experiment_id}/stop").status_code == 200
    return experiment_id


if __name__ == "__main__":
    sys.exit(main())
