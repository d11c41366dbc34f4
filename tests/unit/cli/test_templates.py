"""What `tuner init` lays out: whole files, a name that is the folder's whatever it is, and nobody's file lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner_service.cli.files import templates
from tuner_service.cli.files.experiment_file import parse_file, read_body
from tuner_service.cli.files.templates import MAX_NAME, QUICKSTART, TEMPLATES, lay_out, typed
from tuner_service.cli.main import TEMPLATE_NAMES
from tuner_service.cli.output.exit_codes import CommandError, ExitCode

ROOT = Path(__file__).resolve().parents[3]


def test_the_command_offers_every_template_there_is() -> None:
    folder = Path(templates.__file__).parent.parent / "templates"
    assert set(TEMPLATE_NAMES) == TEMPLATES.keys() == {found.name for found in folder.iterdir()}
    for name, template in TEMPLATES.items():
        there = {found.name for found in (folder / name).iterdir() if not found.name.startswith("__")}
        assert there == set(template.files)


@pytest.mark.parametrize("name", [*TEMPLATES, QUICKSTART])
def test_a_folder_holds_a_script_that_compiles_and_a_file_that_is_read(name: str, tmp_path: Path) -> None:
    file = lay_out(name, tmp_path / "search")

    compile((file.parent / "train.py").read_text(), "train.py", "exec")
    body = read_body(str(file))
    assert body["name"] == (QUICKSTART if name == QUICKSTART else "search")
    assert body["budget"]["trials"] > 1
    (tmp_path / "usual").touch()
    assert file.stat().st_mode == (tmp_path / "usual").stat().st_mode  # a file to be edited, as any other


@pytest.mark.parametrize("name", ["lightning", "transformers"])
def test_what_a_template_needs_is_said_in_both_of_its_files(name: str, tmp_path: Path) -> None:
    file = lay_out(name, tmp_path / "search")

    assert TEMPLATES[name].install in file.read_text()
    assert TEMPLATES[name].install in (file.parent / "train.py").read_text()


def test_packages_that_are_not_there_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"lightning"}
    monkeypatch.setattr(templates, "find_spec", lambda name: name if name in there else None)

    assert not TEMPLATES["lightning"].missing  # either of its names will do
    assert TEMPLATES["transformers"].missing
    there |= {"transformers"}
    assert TEMPLATES["transformers"].missing
    there |= {"accelerate"}
    assert not TEMPLATES["transformers"].missing


@pytest.mark.parametrize("name", ["search", "a b'c", 'ü"\\n', "true", "-x", "1e3", "null", "#5", "NAME", r"\g<0>"])
@pytest.mark.parametrize("template", ["command", "nni"])
def test_an_experiment_is_called_as_its_folder_whatever_that_is(template: str, name: str, tmp_path: Path) -> None:
    file = lay_out(template, tmp_path / name)

    raw = parse_file(str(file))
    assert raw[{"command": "name", "nni": "experimentName"}[template]] == name


@pytest.mark.parametrize("name", ["..", "/", "a\nb", "@last", " ", "x" * (MAX_NAME + 1), "\udcff", "\x1b[2J"])
def test_a_folder_that_gives_no_name_is_refused_before_anything_is_made(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError) as refused:
        lay_out("command", Path(name))

    assert refused.value.code is ExitCode.USAGE
    assert str(refused.value).isprintable()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_keeps_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("1,2\n")
    file = lay_out("command", tmp_path)
    begun = file.read_bytes()

    assert lay_out("command", tmp_path) == file  # the same again is harmless
    assert (file.read_bytes(), (tmp_path / "data.csv").read_text()) == (begun, "1,2\n")
    assert sorted(found.name for found in tmp_path.iterdir()) == ["data.csv", "experiment.yaml", "train.py"]


@pytest.mark.parametrize("mine", ["train.py", "experiment.yaml"])
def test_a_file_of_yours_is_not_replaced_and_nothing_is_put_beside_it(mine: str, tmp_path: Path) -> None:
    (tmp_path / mine).write_text("mine")
    with pytest.raises(CommandError, match=f"{mine} is there already"):
        lay_out("command", tmp_path)

    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [(mine, "mine")]


def test_a_link_in_the_place_of_a_file_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "experiment.yaml").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CommandError, match="is there already"):
        lay_out("command", tmp_path / "search")

    assert not (tmp_path / "elsewhere").exists()


def test_a_path_that_begins_with_a_dash_is_shown_as_it_can_be_typed() -> None:
    assert typed(Path("-x/experiment.yaml")) == "./-x/experiment.yaml"
    assert typed(Path("x/experiment.yaml")) == "x/experiment.yaml"
