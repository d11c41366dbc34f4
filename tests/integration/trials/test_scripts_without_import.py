"""Scripts that import nothing of ours: argparse and Hydra read the parameters, what they print is the metrics."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from tests.integration.trials.fake_service import FakeService

pytestmark = pytest.mark.usefixtures("agent")

PATTERN = r"step=(?P<step>\d+) loss=(?P<loss>\S+)"
ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--layers", type=int)
parser.add_argument("--optimizer")
given = parser.parse_args()
assert (given.layers, given.optimizer) == (3, "adam w"), given
for step in range(3):
    print(f"step={step} loss={given.lr + step}")
"""
HYDRA = """
from dataclasses import dataclass, field
import hydra
from hydra.core.config_store import ConfigStore

@dataclass
class Model:
    layers: int = 1

@dataclass
class Config:
    lr: float = 1.0
    optimizer: str = "sgd"
    model: Model = field(default_factory=Model)

ConfigStore.instance().store(name="config", node=Config)

@hydra.main(version_base=None, config_path=None, config_name="config")
def main(config):
    assert (config.model.layers, config.optimizer) == (3, "adam w"), config
    for step in range(3):
        print(f"step={step} loss={config.lr + step}")

main()
"""


@pytest.mark.parametrize(
    ("script", "prefix", "layers"), [(ARGPARSE, "--", "layers"), (HYDRA, "", "model.layers")], ids=["argparse", "hydra"]
)
@pytest.mark.parametrize("isolation", ["fork", "spawn"])
def test_a_script_is_tuned_without_a_changed_line(
    service: FakeService, script: str, prefix: str, layers: str, isolation: str
) -> None:
    if "hydra" in script and find_spec("hydra") is None:
        pytest.skip("hydra-core is not installed: the extra `integrations` has it")
    parameters: dict[str, Any] = {"lr": 0.25, layers: 3, "optimizer": "adam w"}
    service.launch(script, parameters=parameters, arguments_prefix=prefix, metrics_pattern=PATTERN, isolation=isolation)

    ended = service.wait_for_exit()

    assert (ended.exit.cause, ended.exit.code) == ("exited", 0), ended
    assert service.values("loss") == [0.25, 1.25, 2.25]
