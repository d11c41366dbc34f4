"""NNI's experiment files, read as they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import ROOT
from tuner_service.advisors.registry import ADVISORS
from tuner_service.api.bodies.experiment_file import resolve_experiment
from tuner_service.assessors.registry import ASSESSORS
from tuner_service.cli.files.experiment_file import read_body
from tuner_service.cli.files.nni_file import ALGORITHMS, MAPPED, NOT_HERE, REFUSED, WITHOUT_EFFECT, from_nni, is_nni
from tuner_service.cli.output.exit_codes import CommandError, ExitCode
from tuner_service.tuners.registry import TUNERS

SPACE = {"lr": {"_type": "loguniform", "_value": [0.0001, 0.1]}, "layers": {"_type": "choice", "_value": [1, 2]}}
PAGE = (ROOT / "docs/nni.md").read_text()


def a_file(**changed: Any) -> dict[str, Any]:
    fields = {
        "experimentName": "digits",
        "searchSpace": SPACE,
        "trialCommand": "python3 train.py --epochs 3",
        "trialConcurrency": 4,
        "maxTrialNumber": 20,
        "tuner": {"name": "TPE", "classArgs": {"optimize_mode": "maximize"}},
        "trainingService": {"platform": "local"},
    }
    return {name: value for name, value in (fields | changed).items() if value is not None}


def no_space(name: str) -> dict[str, Any]:
    raise AssertionError(f"{name} should not be read")


def read(**changed: Any) -> tuple[dict[str, Any], list[str]]:
    return from_nni(a_file(**changed), read_space=no_space)


def refusal(**changed: Any) -> str:
    with pytest.raises(CommandError) as refused:
        read(**changed)
    assert refused.value.code is ExitCode.USAGE
    return str(refused.value)


# ── what it becomes ─────────────────────────────────────────────────────────────────────────────
def test_an_experiment_file_becomes_ours() -> None:
    body, notes = read(maxExperimentDuration="1h", maxTrialDuration="10m", trialCodeDirectory="src", trialGpuNumber=0)

    assert body == {
        "name": "digits",
        "objective": {"metric": "default", "goal": "maximize"},
        "search_space": SPACE,
        "tuner": {"name": "tpe"},
        "budget": {"parallel": 4, "trials": 20, "duration": "1h"},
        "trial": {
            "code": "src",
            "command": ["python3", "train.py", "--epochs", "3"],
            "compat": "nni",
            "max_duration": "10m",
        },
    }
    assert notes == []


@pytest.mark.parametrize(
    ("number", "service", "gpus"),
    [
        (1, {}, 1),
        (1, {"maxTrialNumberPerGpu": 4}, 0.25),
        (2, {"maxTrialNumberPerGpu": 4}, 2),
    ],
)
def test_several_trials_on_one_gpu_are_parts_of_it(number: int, service: dict[str, Any], gpus: float) -> None:
    for given in ({"platform": "local"} | service, [{"platform": "local"} | service]):
        body, _ = read(trialGpuNumber=number, trainingService=given)
        assert body["trial"]["resources"] == {"gpus": gpus}


def test_fields_may_be_written_with_underscores() -> None:
    spelled = {re.sub(r"[A-Z]", lambda c: "_" + c[0].lower(), name): value for name, value in a_file().items()}
    spelled["tuner"] = {"name": "TPE", "class_args": {"optimize_mode": "maximize"}}

    assert from_nni(spelled, read_space=no_space) == read()


def test_a_file_of_version_1_is_read_too() -> None:
    old = {
        "authorName": "default",
        "experimentName": "digits",
        "trialConcurrency": 4,
        "maxTrialNum": 20,
        "trainingServicePlatform": "local",
        "searchSpacePath": "space.json",
        "useAnnotation": False,
        "tuner": {"builtinTunerName": "TPE", "classArgs": {"optimize_mode": "maximize"}},
        "trial": {"command": "python3 train.py --epochs 3", "codeDir": ".", "gpuNum": 0},
    }

    assert is_nni(old)
    assert from_nni(old, read_space={"space.json": SPACE}.__getitem__) == read()


def test_a_file_of_ours_is_not_taken_for_one_of_nni() -> None:
    assert not is_nni({"name": "x", "objective": {"metric": "loss"}, "trial": {"command": "python train.py"}})


@pytest.mark.parametrize("command", ["cd src && python3 train.py", "LR=1 python3 train.py", "python3 train.py > $OUT"])
def test_a_command_for_a_shell_gets_one(command: str) -> None:
    assert read(trialCommand=command)[0]["trial"]["command"] == ["sh", "-c", command]


@pytest.mark.parametrize(
    ("algorithm", "ours"),
    [
        (
            {"tuner": {"name": "tpe", "classArgs": {"seed": 3, "tpe_args": {"n_startup_jobs": 5}}}},
            {"tuner": {"name": "tpe", "args": {"n_startup_trials": 5}}, "seed": 3, "goal": "minimize"},
        ),
        ({"tuner": {"name": "GridSearch"}}, {"tuner": {"name": "grid"}, "goal": "maximize"}),
        (
            {"tuner": {"name": "TPE", "classArgs": {"tpe_args": {"constant_liar_type": None}}}},
            {"tuner": {"name": "tpe", "args": {"constant_liar": False}}, "goal": "minimize"},
        ),
        (
            {"tuner": {"name": "PBTTuner", "classArgs": {"fraction": 0.2, "optimize_mode": "minimize"}}},
            {"advisor": {"name": "pbt", "args": {"quantile": 0.2}}, "goal": "minimize"},
        ),
        (
            {"tuner": {"name": "Random"}, "assessor": {"name": "Medianstop", "classArgs": {"start_step": 3}}},
            {
                "tuner": {"name": "random"},
                "assessor": {"name": "median_stop", "args": {"start_step": 3}},
                "goal": "maximize",
            },
        ),
        ({"tuner": {"name": "TPE"}, "advisor": {"name": "_none_"}}, {"tuner": {"name": "tpe"}, "goal": "minimize"}),
    ],
)
def test_algorithms_arguments_goal_and_seed_are_taken_over(algorithm: dict[str, Any], ours: dict[str, Any]) -> None:
    body, _ = read(**algorithm)

    found = {name: body[name] for name in ("tuner", "assessor", "advisor", "seed") if name in body}
    assert found | {"goal": body["objective"]["goal"]} == ours


def test_the_batch_tuner_proposes_the_options_without_their_name() -> None:
    listed = [{"lr": 0.1, "name": "sgd"}, {"lr": 0.01, "name": "sgd"}]

    body, _ = read(tuner={"name": "BatchTuner"}, searchSpace={"combine": {"_type": "choice", "_value": listed}})

    assert body["tuner"] == {"name": "batch", "args": {"parameters": listed}}
    assert body["search_space"] == {
        "lr": {"_type": "choice", "_value": [0.1, 0.01]},
        "name": {"_type": "choice", "_value": ["sgd"]},
    }


@pytest.mark.parametrize(("name", "args", "most"), [("Hyperband", {"R": 27}, 27), ("BOHB", {"max_budget": 9}, 9)])
def test_a_script_for_hyperband_is_told_the_largest_budget(name: str, args: dict[str, Any], most: int) -> None:
    body, notes = read(tuner=None, advisor={"name": name, "classArgs": {**args, "eta": 3}})

    assert body["advisor"] == {"name": name.lower(), "args": {"max_step": most, "reduction_factor": 3}}
    assert body["search_space"]["TRIAL_BUDGET"] == {"type": "const", "value": most}
    assert any("rest at rungs" in note for note in notes)


def test_what_has_no_effect_here_is_said() -> None:
    _, notes = read(debug=True, tuner={"name": "TPE", "classArgs": {"tpe_args": {"gamma": 0.3}}})

    assert notes[0].startswith("debug has no effect here")
    assert notes[1].startswith("gamma of TPE has no effect here")


def test_every_kind_of_file_is_accepted_by_the_service(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    for place, algorithm in enumerate(("TPE", "Random", "GridSearch", "Evolution", "GP")):
        file = tmp_path / f"{place}.json"
        text = str(a_file(tuner={"name": algorithm})).replace("'", '"')
        file.write_text(text)

        resolved = resolve_experiment(read_body(str(file)))

        assert resolved.spec.trial.compat == "nni"


@pytest.mark.parametrize("name", ["Hyperband", "BOHB"])
def test_hyperband_may_be_written_as_a_tuner_as_nni_3_does(name: str) -> None:
    body, _ = read(tuner={"name": name, "classArgs": {"optimize_mode": "minimize", "eta": 4}})

    most = {"Hyperband": 60, "BOHB": 3}[name]  # NNI's own, and what the script is told
    assert body["advisor"] == {"name": name.lower(), "args": {"max_step": most, "reduction_factor": 4}}
    assert body["search_space"]["TRIAL_BUDGET"]["value"] == most
    assert "tuner" not in body
    assert body["objective"]["goal"] == "minimize"


@pytest.mark.parametrize("kind", ["tuner", "assessor", "advisor"])
def test_a_class_written_for_nni_becomes_one_of_ours_that_asks_it(kind: str) -> None:
    given = {
        "className": "mine.Mine",
        "codeDirectory": "./src/search",
        "classArgs": {"optimize_mode": "minimize", "a": 1},
    }
    body, notes = read(**{"trialCodeDirectory": "src", kind: given} | ({"tuner": None} if kind == "advisor" else {}))

    assert body[kind]["class"].startswith(f"tuner_service.workers.nni.{kind}:Nni")
    assert body[kind]["args"] == {
        "class_name": "mine.Mine",
        "code_directory": "search",
        "class_args": {"optimize_mode": "minimize", "a": 1},
    }
    assert any("asked again after a restart" in note for note in notes)


def test_a_class_of_an_older_file_is_found_by_its_file_name() -> None:
    given = {"codeDir": ".", "classFileName": "mine.py", "className": "Mine", "includeIntermediateResults": True}
    body, _ = from_nni(
        {"authorName": "me", "searchSpacePath": "s.json", "trial": {"command": "x", "codeDir": "."}, "tuner": given},
        read_space=lambda _: SPACE,
    )

    assert body["tuner"]["args"] == {
        "class_name": "mine.Mine",
        "code_directory": ".",
        "class_args": {},
        "include_intermediate_results": True,
    }


@pytest.mark.parametrize("service", ["local", ["local"], {"platform": "local"}])
def test_the_training_service_of_this_machine_may_be_named_alone(service: Any) -> None:
    assert read(trainingService=service) == read()


def test_an_empty_folder_of_code_is_that_of_the_file() -> None:
    tuner = {"className": "my.Tuner", "codeDirectory": ""}

    assert read(trialCodeDirectory="", tuner=tuner) == read(trialCodeDirectory=".", tuner=tuner)


# ── what is refused ─────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tuner": {"name": "SMAC"}}, "'SMAC' is not here; use TPE instead"),
        ({"tuner": {"name": "Nonsense"}}, "'Nonsense' is not here; known: tpe, random"),
        (
            {"trialCodeDirectory": "src", "tuner": {"className": "my.Tuner", "codeDirectory": "tuners"}},
            "tuner.codeDirectory lies outside trialCodeDirectory (src)",
        ),
        ({"useAnnotation": True}, "useAnnotation is not supported"),
        ({"trainingService": [{"platform": "local"}, {"platform": "remote"}]}, "'remote' is not here"),
        ({"trialCommand": " "}, "trialCommand is missing"),
        ({"tunner": {}}, "tunner is no field"),
        ({"tuner": {"name": "Batch"}}, "a search space of one choice"),
        ({"tuner": "TPE"}, "tuner should be a mapping, not 'TPE'"),
        ({"assessor": ["Medianstop"]}, "assessor should be a mapping"),
        ({"tuner": {"name": "TPE", "classArgs": "maximize"}}, "tuner.classArgs should be a mapping, not 'maximize'"),
        ({"tuner": {"className": "my.Tuner", "classArgs": [1]}}, "tuner.classArgs should be a mapping, not [1]"),
        ({"tuner": {"name": "TPE", "classArgs": {"tpe_args": 5}}}, "tuner.classArgs.tpe_args should be a mapping"),
        ({"searchSpace": ["lr"]}, "searchSpace should be a mapping, not ['lr']"),
        ({"trainingService": "remote"}, "'remote' is not here"),
        ({"trialCommand": "python 'train.py"}, "cannot be split into words: No closing quotation"),
        ({"authorName": "me", "trial": "python train.py"}, "trial should be a mapping, not 'python train.py'"),
        ({"authorName": "me", "tuner": "TPE"}, "tuner should be a mapping, not 'TPE'"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(changed: dict[str, Any], said: str) -> None:
    assert said in refusal(**changed)


# ── the page ────────────────────────────────────────────────────────────────────────────────────
def test_the_page_names_every_field_and_every_algorithm() -> None:
    fields = [*MAPPED, *WITHOUT_EFFECT, *REFUSED]
    algorithms = [name for known in ALGORITHMS.values() for name in known] + list(NOT_HERE)
    named = {found.lower() for found in re.findall(r"`([\w]+)`", PAGE)}

    assert not {name.lower() for name in fields} - named
    assert not set(algorithms) - named


def test_the_page_names_every_argument_that_is_taken_over() -> None:
    args = {arg for known in ALGORITHMS.values() for algorithm in known.values() for arg in algorithm.args}

    assert not {arg for arg in args if f"`{arg}`" not in PAGE}


def test_every_algorithm_and_argument_it_becomes_is_one_of_ours() -> None:
    registered = {"tuner": TUNERS, "assessor": ASSESSORS, "advisor": ADVISORS}
    for known in ALGORITHMS.values():
        for algorithm in known.values():
            options = {option.name for option in registered[algorithm.kind][algorithm.name].options}
            assert set(algorithm.args.values()) <= options, algorithm
