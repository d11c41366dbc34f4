"""What is sent of a function: its source and that of what it uses, in modules that can be imported elsewhere."""

from __future__ import annotations

import functools
import linecache
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tuner_service import UsageError
from tuner_service.program.functions import PackedFunction, packed_function

Cells = Callable[..., dict[str, Any]]


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cells]:
    """Runs cells as a kernel does: in one namespace, each in a file that only the line cache has."""
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    names = []

    def run(*cells: str) -> dict[str, Any]:
        for cell in cells:
            name = f"/tmp/ipykernel_1/{len(names)}.py"
            names.append(name)
            linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
            exec(compile(cell, name, "exec", dont_inherit=True), main.__dict__)
        return main.__dict__

    yield run
    for name in names:
        del linecache.cache[name]


def called(packed: PackedFunction, **arguments: Any) -> Any:
    """What the function gives in a module of its own, which knows nothing of this one."""
    (text,) = [text for path, text in packed.files.items() if path == f"{packed.name}_function.py"]
    module: dict[str, Any] = {"__name__": f"{packed.name}_function"}
    exec(compile(text, "sent", "exec", dont_inherit=True), module)
    return module[packed.name](**arguments)


def refused(function: Any) -> list[str]:
    with pytest.raises(UsageError) as wrong:
        packed_function(function)
    return [error["detail"] for error in wrong.value.errors]


def test_a_function_brings_what_it_uses_of_the_notebook_and_nothing_else(notebook: Cells) -> None:
    cells = notebook(
        "import math\nimport json\nfrom math import hypot as length\nUNUSED = open",
        "SCALE = 3.0\nNAMES = {'a': (1,), 'b': [None, True]}\n",
        "class Point:\n    def __init__(self, x):\n        self.x = x * SCALE\n",
        "def helper(x):\n    # a comment stays\n    return length(Point(x).x, math.floor(4.5))\n",
        "def train(x, names=NAMES):\n    return helper(x) + len(names)\n",
    )
    packed = packed_function(cells["train"])

    assert packed.command == ["python", "-m", "trials.functions", "train_function:train"]
    assert called(packed, x=1.0) == 7.0
    text = packed.files["train_function.py"]
    assert "# a comment stays" in text
    assert "json" not in text
    assert "UNUSED" not in text


def test_of_a_cell_that_was_run_twice_the_newer_definition_is_sent(notebook: Cells) -> None:
    notebook("class Model:\n    width = 1\n", "def train():\n    return Model.width\n")
    cells = notebook("class Model:\n    width = 2\n")

    assert called(packed_function(cells["train"])) == 2


def test_functions_that_call_each_other_and_themselves_are_sent_once(notebook: Cells) -> None:
    cells = notebook(
        "def even(n):\n    return True if n == 0 else odd(n - 1)\n\n"
        "def odd(n):\n    return False if n == 0 else even(n - 1)\n"
    )

    assert called(packed_function(cells["even"]), n=4) is True


def test_decorators_base_classes_and_names_given_to_others_come_before_their_use(notebook: Cells) -> None:
    cells = notebook(
        "import functools\nfrom dataclasses import dataclass\n",
        "def twice(function):\n    @functools.wraps(function)\n    def inner(*a, **k):\n"
        "        return 2 * function(*a, **k)\n    return inner\n",
        "class Base:\n    one = 1\n\n@dataclass\nclass Step(Base):\n    size: int = 2\n\nalias = Step\n",
        "@twice\ndef train(x):\n    return x * alias().size + Step.one\n",
    )

    assert called(packed_function(cells["train"]), x=2) == 10


def test_submodules_that_a_name_leads_to_are_imported(notebook: Cells) -> None:
    cells = notebook("import xml.etree.ElementTree\ndef train():\n    return xml.etree.ElementTree.Element('a').tag\n")

    assert "import xml.etree.ElementTree" in packed_function(cells["train"]).files["train_function.py"]


def test_late_annotations_stay_late(notebook: Cells) -> None:
    cells = notebook("from __future__ import annotations\ndef train(x: NotThere) -> Neither:\n    return x\n")

    assert called(packed_function(cells["train"]), x=1) == 1


def test_special_numbers_sets_and_paths_are_constants_as_well(notebook: Cells) -> None:
    cells = notebook(
        "from pathlib import Path\nHIGH, NONE, EMPTY, DATA = float('inf'), float('nan'), set(), Path('/data')\n",
        "def train():\n    return HIGH, NONE != NONE, EMPTY, DATA\n",
    )

    assert called(packed_function(cells["train"])) == (float("inf"), True, set(), Path("/data"))


def test_paths_in_a_list_or_a_mapping_are_constants_as_well(notebook: Cells) -> None:
    cells = notebook(
        "from pathlib import Path\nFOLDERS = {'images': [Path('/data')]}\n",
        "def train():\n    return FOLDERS\n",
    )

    assert called(packed_function(cells["train"])) == {"images": [Path("/data")]}


def test_everything_that_cannot_be_sent_is_named_at_once(notebook: Cells) -> None:
    cells = notebook(
        "import io\nstream, model = io.StringIO(), object()\n",
        "def outer():\n    width = 3\n    def inner(x):\n        return x * width\n    return inner\ninner = outer()\n",
        "def train():\n    return stream, model, inner, missing\n",
    )

    said = "\n".join(refused(cells["train"]))

    assert "uses stream, a _io.StringIO which cannot be sent" in said
    assert "uses model, a object which cannot be sent" in said
    assert "uses inner, which is a closure over width" in said
    assert "uses missing, which is not defined" in said


def test_a_constant_beyond_the_limit_is_named_with_its_size(notebook: Cells) -> None:
    cells = notebook("BIG = 'x' * (1 << 21)\ndef train():\n    return BIG\n")

    (said,) = refused(cells["train"])

    assert said.startswith("uses BIG, a str of 2097154 characters which cannot be sent; make it inside of the function")


def test_a_function_without_source_is_refused(notebook: Cells) -> None:
    cells = notebook("exec('def train(): pass')")

    assert refused(cells["train"]) == ["there is no source of train: it was not written in a cell or a file"]


def test_what_is_no_plain_function_is_refused_with_what_to_give_instead(notebook: Cells) -> None:
    cells = notebook(
        "class Model:\n    def fit(self, x): ...\nasync def waits(): ...\ndef yields():\n    yield 1\n",
        "def train(x): ...\n",
    )

    assert "is a lambda" in refused(lambda: 1)[0]
    assert "is a method" in refused(cells["Model"]().fit)[0]
    assert "the class Model" in refused(cells["Model"])[0]
    assert "a builtin_function_or_method" in refused(print)[0]
    assert "nobody who awaits" in refused(cells["waits"])[0]
    assert "nobody who awaits or iterates" in refused(cells["yields"])[0]
    assert "is a partial" in refused(functools.partial(cells["train"], 1))[0]


# ── importable functions ────────────────────────────────────────────────────────────────────────
@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    files = {
        "alone.py": "import lib.deep.tools\nfrom lib import sibling\ndef train(x):\n    return lib.deep.tools.twice(x)",
        "lib/__init__.py": "",
        "lib/sibling.py": "from . import cousin\n",
        "lib/cousin.py": "import json\n",
        "lib/deep/__init__.py": "",
        "lib/deep/tools.py": "from ..sibling import cousin\n\ndef twice(x):\n    return 2 * x\n",
        "unused.py": "",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in {"alone", "lib"}:
            del sys.modules[name]


def test_of_an_importable_function_the_modules_of_its_author_are_sent(project: Path) -> None:
    import alone  # type: ignore[import-not-found]  # written by the fixture

    packed = packed_function(alone.train)

    assert packed.command[-1] == "alone:train"
    assert set(packed.files) == {
        "alone.py", "lib/__init__.py", "lib/sibling.py", "lib/cousin.py", "lib/deep/__init__.py", "lib/deep/tools.py",
    }  # fmt: skip


def test_beside_a_code_folder_it_is_called_where_it_stands_there(project: Path) -> None:
    from lib.deep.tools import twice  # type: ignore[import-not-found]  # written by the fixture

    packed = packed_function(twice, beside=project / "lib")

    assert packed.files == {}
    assert packed.command[-1] == "deep.tools:twice"


def test_a_function_of_an_installed_package_needs_no_files() -> None:
    import textwrap

    packed = packed_function(textwrap.dedent)

    assert packed.files == {}
    assert packed.command[-1] == "textwrap:dedent"


def test_a_notebooks_function_brings_modules_of_its_author(notebook: Cells, project: Path) -> None:
    cells = notebook(
        "import alone\nfrom lib.deep import tools as t\ndef train(x):\n    return alone.train(x) + t.twice(x)\n"
    )

    packed = packed_function(cells["train"])

    assert {"alone.py", "lib/deep/tools.py", "train_function.py"} <= set(packed.files)
    assert called(packed, x=1) == 4


def test_the_packages_that_every_trial_has_are_never_sent(notebook: Cells) -> None:
    cells = notebook(
        "import trials\nimport tuner_service.config\ndef train():\n    return trials.init, tuner_service.config\n"
    )

    assert set(packed_function(cells["train"]).files) == {"train_function.py"}


def test_a_module_that_cannot_be_read_is_named(project: Path) -> None:
    import alone

    (project / "lib/cousin.py").write_text("def broken(:\n")

    with pytest.raises(UsageError, match=r"cousin\.py, which it imports, cannot be read"):
        packed_function(alone.train)
