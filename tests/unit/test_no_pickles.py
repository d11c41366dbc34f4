"""What is sent to the service is never unpickled: no module of it can."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "tuner_service"
UNPICKLING = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "jsonpickle"}
LOADERS = {("torch", "load"), ("numpy", "load"), ("np", "load"), ("pandas", "read_pickle"), ("pd", "read_pickle")}


def faults_of(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names if name.name.partition(".")[0] in UNPICKLING)
            case ast.ImportFrom(module=module) if module and module.partition(".")[0] in UNPICKLING:
                yield module
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if (owner, name) in LOADERS:
                yield f"{owner}.{name}"
            case _:
                pass


def test_no_module_of_the_service_unpickles() -> None:
    files = sorted(ROOT.rglob("*.py"))

    assert len(files) > 100
    assert {str(file): found for file in files if (found := list(faults_of(file.read_text(encoding="utf-8"))))} == {}


def test_one_that_did_would_be_found() -> None:
    text = "import pickle\nfrom dill import loads\nimport torch\ntorch.load(x)\nimport json\njson.load(y)\n"

    assert list(faults_of(text)) == ["pickle", "dill", "torch.load"]
