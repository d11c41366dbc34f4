"""pareto, importance and slices as people read them, and as pictures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import matplotlib.font_manager  # noqa: F401  # on a new machine its first import starts a process, which no test here may
import pytest

from tuner_service.cli.output import analyses, pictures
from tuner_service.cli.output.exit_codes import ExitCode

PARETO: dict[str, Any] = {
    "id": "e1",
    "objectives": [{"metric": "loss", "goal": "minimize"}, {"metric": "speed", "goal": "maximize"}],
    "front": [
        {"number": 2, "value": 0.5, "values": [0.5, 1.0], "parameters": {"lr": 0.1}},
        {"number": 7, "value": 0.75, "values": [0.75, 3.0], "parameters": {"lr": 0.01}},
    ],
    "others": [{"number": 3, "values": [2.0, 0.5]}],
    "reference": [2.15, 0.25],
    "hypervolume": 4.8,
    "left_out": 0,
}
IMPORTANCE = {"id": "e1", "metric": "loss", "trials": 40, "importance": {"lr": 0.75, "batch": 0.25}, "message": ""}
SLICES: dict[str, Any] = {
    "id": "e1",
    "objective": {"metric": "loss", "goal": "minimize"},
    "slices": {
        "lr": {"numbers": [1, 2, 3], "parameter": [0.001, 0.01, 1.0], "values": [[3.0], [1.0], [2.0]]},
        "mode": {"numbers": [1, 2, 3], "parameter": ["a", "b", "a"], "values": [[3.0], [1.0], ["Infinity"]]},
        "same": {"numbers": [1, 2], "parameter": [5, 5], "values": [[3.0], [1.0]]},
    },
}


def test_the_front_is_a_table_with_a_column_for_each_objective() -> None:
    lines = analyses.pareto_text(PARETO).splitlines()
    assert lines[0].startswith("minimize loss, maximize speed: 2 trials that none other dominates; hypervolume 4.8")
    assert lines[2].split() == ["NUMBER", "LOSS", "SPEED", "PARAMETERS"]
    assert lines[3].split() == ["2", "0.5", "1", "lr=0.1"]
    assert "no trial of e1" in analyses.pareto_text({**PARETO, "front": []})


def test_importance_is_drawn_as_bars() -> None:
    lines = analyses.importance_text(IMPORTANCE).splitlines()
    assert lines[0] == "loss, over 40 trials (PED-ANOVA)"
    assert lines[2].startswith("lr     ███")
    assert lines[2].endswith("75.0%")
    assert lines[2].count("█") == 3 * lines[3].count("█")
    assert analyses.importance_text({**IMPORTANCE, "importance": {}, "message": "too few"}) == "too few\n"


def test_slices_show_the_best_value_along_each_parameter() -> None:
    text = analyses.slices_text(SLICES)
    assert text.startswith("best loss along each parameter")
    assert "0.001 " in text
    assert "1 to 2" in text
    assert "b 1 · a 3" in text
    assert "no trial of e1" in analyses.slices_text({**SLICES, "slices": {}})


def test_a_slice_over_all_that_a_float_holds_is_drawn() -> None:
    most = 1.7e308
    wide = {"numbers": [1, 2, 3], "parameter": [-most, 0.0, most], "values": [[most], [0.0], [-most]]}

    assert "-1.7e+308 █     ▅    ▁ 1.7e+308   -1.7e+308 to 1.7e+308" in analyses.slices_text(
        {**SLICES, "slices": {"lr": wide}}
    )


@pytest.mark.parametrize(
    ("view", "kind"),
    [
        (PARETO, "pareto"),
        ({**PARETO, "objectives": PARETO["objectives"][:1], "front": [], "others": []}, "pareto"),
        (IMPORTANCE, "importance"),
        (SLICES, "slices"),
    ],
)
def test_each_can_be_drawn_into_a_file(tmp_path: Path, view: dict[str, Any], kind: str) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra plot")
    pictures.write_png(tmp_path / "picture.png", kind, view)
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_goes_to_its_file_and_nothing_to_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="pictures need the extra plot")
    arguments = argparse.Namespace(png=str(tmp_path / "i.png"), output="table")
    code = pictures.print_or_draw(arguments, "importance", IMPORTANCE, analyses.importance_text)
    printed = capsys.readouterr()
    assert code == ExitCode.OK
    assert printed.out == ""
    assert "i.png" in printed.err
