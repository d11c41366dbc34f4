"""What a trial gets of the variables of whoever started the service."""

from __future__ import annotations

from typing import Any

import pytest

from trials.agent.forks.isolation import Fork, choose
from trials.agent.supervision.command import environment
from trials.wire.variables import is_inherited, left_out, with_path


def of_trial(base: dict[str, str], **spec: Any) -> dict[str, str]:
    attempt = {
        "spec": {"parameters": {}, "objective": "loss", "seed": 1, **spec},
        "key": {"experiment_id": "e", "number": 1, "attempt": 1},
        "nonce": "n",
        "local": {"wake": "/w"},
    }
    return environment(base, attempt, attempt_dir="/a", paths=[])


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"),
        *("CUDA_HOME", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "SSL_CERT_FILE", "HTTPS_PROXY", "no_proxy"),
        *("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_OFFLINE", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR", "OMP_NUM_THREADS"),
        *("MKL_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "CUBLAS_WORKSPACE_CONFIG", "NCCL_DEBUG", "PYTHONHASHSEED"),
        *("TOKENIZERS_PARALLELISM", "LD_PRELOAD", "TRITON_CACHE_DIR", "KMP_AFFINITY", "MPLBACKEND"),
    ],
)
def test_every_trial_gets_what_training_scripts_run_with(name: str) -> None:
    assert is_inherited(name)
    assert of_trial({name: "x"})[name] == "x"


SECRETS = [
    *("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "GOOGLE_APPLICATION_CREDENTIALS", "WANDB_API_KEY", "GITHUB_TOKEN"),
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "DATABASE_URL", "PGPASSWORD", "OPENAI_API_KEY", "MY_VARIABLE"),
    *("CONDA_TOKEN", "XDG_SECRET", "TORCH_API_KEY", "MLFLOW_TRACKING_PASSWORD", "SENTRY_DSN", "KUBECONFIG"),
]


@pytest.mark.parametrize("name", SECRETS)
def test_keys_and_passwords_are_passed_only_where_the_experiment_names_them(name: str) -> None:
    assert name not in of_trial({name: "x"})
    assert of_trial({name: "x"}, pass_environment=[name])[name] == "x"
    assert of_trial({name: "x"}, environment={name: "own"})[name] == "own"


@pytest.mark.parametrize("name", ["TUNER_TOKEN", "TUNER_DB", "TRIAL_PARAM_LR"])
def test_what_is_the_services_own_is_never_passed(name: str) -> None:
    assert of_trial({name: "x"}, pass_environment=[name]).get(name) != "x"


def test_the_process_that_trials_are_forked_from_has_no_more_than_they() -> None:
    base = dict.fromkeys([*SECRETS, "PATH"], "x")
    attempt: dict[str, Any] = {
        "spec": {"command": ["python", "a.py"], "parameters": {}, "objective": "", "seed": 0, "secrets": {"A": "a"}},
        "key": {"experiment_id": "e", "number": 1, "attempt": 1},
        "nonce": "n",
        "local": {"python": "/python", "paths": [], "wake": ""},
    }

    plain = choose(attempt, base=base, preload=())
    attempt["spec"]["pass_environment"] = ["WANDB_API_KEY"]
    named = choose(attempt, base=base, preload=())

    assert isinstance(plain, Fork)
    assert isinstance(named, Fork)
    assert not {*SECRETS, "A"} & set(plain.variables)
    assert {*SECRETS, "A"} & set(named.variables) == {"WANDB_API_KEY"}
    assert plain.key != named.key


def test_what_is_left_out_is_named_but_for_what_nobody_misses() -> None:
    names = ["PATH", "PWD", "SSH_AUTH_SOCK", "TUNER_DB", "WANDB_API_KEY", "AWS_PROFILE", "DATA_DIR", "SHLVL", "_"]

    assert left_out(names, []) == ["AWS_PROFILE", "DATA_DIR", "WANDB_API_KEY"]
    assert left_out(names, ["DATA_DIR"]) == ["AWS_PROFILE", "WANDB_API_KEY"]


def test_the_folder_of_the_services_packages_is_on_no_trials_path() -> None:
    of_agent = with_path(with_path({"PYTHONPATH": "/mine"}, "/service"), "/service")

    assert of_agent["PYTHONPATH"] == "/service:/mine"
    assert of_trial(of_agent)["PYTHONPATH"] == "/mine"
    assert of_trial(of_agent, environment={"PYTHONPATH": "/service"})["PYTHONPATH"] == "/service"


def test_a_path_that_somebody_named_is_kept_where_it_is_the_services_too() -> None:
    of_agent = with_path({"PYTHONPATH": "/mine:/service"}, "/service")

    assert of_agent["PYTHONPATH"] == "/mine:/service"
    assert of_trial(of_agent)["PYTHONPATH"] == "/mine:/service"


def test_the_process_that_trials_are_forked_from_has_not_the_folder_of_the_services_packages() -> None:
    local = {"python": "/usr/bin/python3", "paths": ["/sdk"], "wake": ""}
    attempt = {"spec": {"command": ["python", "train.py"]}, "local": local}

    chosen = choose(attempt, base=with_path({}, "/service"), preload=())

    assert isinstance(chosen, Fork)
    assert chosen.variables["PYTHONPATH"] == "/sdk"
