"""Assets as inputs of trials and outputs of trials, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api_service import ApiService, a_body, an_api_service
from tests.asset_trees import Tree, a_tree, send_missing
from tests.builders import a_trial
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.trial import TrialOutput, TrialStatus

EXPERIMENTS = "/api/v1/experiments"


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def added(api: ApiService, tree: Tree, name: str | None = None) -> str:
    send_missing(api, tree)
    body = {"manifest": tree.described, "kind": "dataset"} | ({} if name is None else {"name": name})
    answer = api.client.post("/api/v1/assets", json=body)
    assert answer.status_code in {200, 201}, answer.text
    return tree.id


def body_with(**trial: Any) -> dict[str, Any]:
    body = a_body()
    return body | {"trial": {**body["trial"], **trial}}


def faults_of(api: ApiService, body: dict[str, Any]) -> dict[str, str]:
    answer = api.client.post(EXPERIMENTS, json=body)
    assert answer.status_code == 422, answer.text
    return {error["pointer"]: error["detail"] for error in answer.json()["errors"]}


def put_trial(api: ApiService, experiment_id: str, output: TrialOutput | None, *, number: int = 1) -> str:
    trial = a_trial(experiment_id=experiment_id, number=number, status=TrialStatus.SUCCEEDED, output=output)
    api.store.commit(Changes(trials={(experiment_id, number): trial}))
    return f"{experiment_id}/{number}"


def test_a_name_is_looked_up_once_and_then_stands_for_its_digest(api: ApiService) -> None:
    first = added(api, a_tree({"a": b"1"}), "digits")
    view = api.client.post(EXPERIMENTS, json=body_with(datasets={"data": "digits"})).json()
    added(api, a_tree({"a": b"2"}), "digits")

    assert view["trial"]["datasets"] == {"data": {"asset": f"sha256:{first}", "name": "digits@1"}}
    assert view["inputs"] == {"data": f"digits@1 (sha256:{first[:12]})"}
    clone = api.client.post(f"{EXPERIMENTS}/{view['id']}/clone", json={}).json()
    assert clone["trial"]["datasets"] == view["trial"]["datasets"]


def test_lists_references_models_and_code_by_an_asset(api: ApiService) -> None:
    first, second = added(api, a_tree({"a": b"1"}), "digits"), added(api, a_tree({"b": b"2"}))
    trial = {
        "datasets": {"data": ["digits@1", f"sha256:{second}"], "large": {"path": "/data", "mode": "reference"}},
        "models": {"model": {"asset": first, "name": "mine", "inside": "a"}},
        "code": {"asset": "digits@latest"},
    }
    view = api.client.post(EXPERIMENTS, json=body_with(**trial)).json()

    assert view["inputs"]["data"] == [f"digits@1 (sha256:{first[:12]})", f"sha256:{second[:12]}"]
    assert view["inputs"]["large"] == "/data (by reference)"
    assert view["trial"]["code"] == {"asset": f"sha256:{first}", "name": "digits@1"}
    again = api.client.post(EXPERIMENTS, json=body_with(**{name: view["trial"][name] for name in trial}))
    assert again.json()["trial"] == view["trial"]


def test_everything_that_is_not_there_is_named_at_its_place(api: ApiService) -> None:
    added(api, a_tree({"a": b"1"}), "digits")
    found = faults_of(
        api,
        body_with(
            datasets={"data": ["digits@2", "digits"], "a/b": "nothing"},
            models={"m": {"asset": "digits", "inside": "none"}},
            pretrained_from={"warm": "zzzzz/1"},
        ),
    )

    assert set(found) == {
        "/trial/datasets/data/0", "/trial/datasets/a~1b", "/trial/models/m", "/trial/pretrained_from/warm",
    }  # fmt: skip


def test_a_path_may_not_take_the_name_of_a_parameter(api: ApiService) -> None:
    name = next(iter(a_body()["search_space"]))

    assert "search space" in faults_of(api, body_with(datasets={name: "digits"}))[f"/trial/datasets/{name}"]


def test_what_a_trial_left_is_given_to_others_where_it_is_whole(api: ApiService) -> None:
    asset = added(api, a_tree({"weights": b"1"}))
    source = api.create()
    whole = put_trial(api, source, TrialOutput(attempt=1, asset=asset, size=1, files=1))
    none = put_trial(api, source, None, number=2)
    cut = put_trial(api, source, TrialOutput(attempt=1, asset=asset, is_complete=False, message="a: a pipe"), number=3)
    lost = put_trial(api, source, TrialOutput(attempt=1, asset="", is_complete=False, message="disk"), number=4)

    view = api.client.post(EXPERIMENTS, json=body_with(pretrained_from={"warm": [whole]})).json()
    refused = faults_of(api, body_with(pretrained_from={"b": none, "c": cut, "d": lost, "e": f"{source}/best"}))

    assert view["inputs"] == {"warm": [f"{whole} (sha256:{asset[:12]})"]}
    assert "has no output" in refused["/trial/pretrained_from/b"]
    assert "a pipe" in refused["/trial/pretrained_from/c"]
    assert "disk" in refused["/trial/pretrained_from/d"]
    assert "no best trial" in refused["/trial/pretrained_from/e"]


@pytest.mark.parametrize("path", ["outputs", "outputs/a.txt", "outputs/sub/b"])
def test_an_output_folder_that_the_code_has_files_in_is_refused(api: ApiService, path: str) -> None:
    code = {"files": [{"path": path, "content": ""}]}

    assert "/trial/output" in faults_of(api, body_with(code=code, output="outputs"))


@pytest.mark.parametrize(("path", "said"), [("outputs/old.pt", "outputs/old.pt among them"), ("outputs", "outputs")])
def test_an_output_folder_that_an_asset_of_code_has_files_in_is_refused(api: ApiService, path: str, said: str) -> None:
    added(api, a_tree({"train.py": b"", path: b"weights"}), "trainer")

    assert said in faults_of(api, body_with(code={"asset": "trainer"}, output="outputs"))["/trial/output"]
    view = api.client.post(EXPERIMENTS, json=body_with(code={"asset": "trainer"}, output="results")).json()
    assert view["trial"]["output"] == "results"


def test_code_that_a_search_is_resumed_with_leaves_its_output_folder_alone(api: ApiService) -> None:
    old, new = ({"files": [{"path": path, "content": ""}]} for path in ("train.py", "outputs/old.pt"))
    digest = api.client.post(EXPERIMENTS, json=body_with(code=new)).json()["trial"]["code"]
    view = api.client.post(EXPERIMENTS, json=body_with(code=old, output="outputs")).json()
    resume = f"{EXPERIMENTS}/{view['id']}/resume"

    for code in (new, digest):
        refused = api.client.post(resume, json={"code": code})
        assert refused.status_code == 422, refused.text
        assert refused.json()["errors"][0]["pointer"] == "/code"
        assert "outputs/old.pt" in refused.json()["errors"][0]["detail"]
    assert "outputs/old.pt" in faults_of(api, body_with(code=digest, output="outputs"))["/trial/output"]
    assert api.client.post(resume, json={"code": old}).status_code == 200


def test_an_output_folder_inside_a_file_is_refused_and_one_beside_files_is_taken(api: ApiService) -> None:
    code = {"files": [{"path": "out", "content": ""}, {"path": "outputs2", "content": ""}]}

    assert "is a file of the code" in faults_of(api, body_with(code=code, output="out/results"))["/trial/output"]
    view = api.client.post(EXPERIMENTS, json=body_with(code=code, output="outputs", keep_outputs="always")).json()
    assert (view["trial"]["output"], view["trial"]["keep_outputs"]) == ("outputs", "always")


def test_files_of_an_output_are_listed_and_given_as_attachments_in_ranges(api: ApiService) -> None:
    asset = added(api, a_tree({"sub/run é.sh": b"0123456789", "page.html": b"<script>"}))
    experiment_id = api.create()
    trial = put_trial(api, experiment_id, TrialOutput(attempt=1, asset=asset, size=18, files=2))
    files = f"/api/v1/trials/{trial}/files"

    listed = api.client.get(files).json()
    assert [file["path"] for file in listed["items"]] == ["page.html", "sub/run é.sh"]
    assert (listed["asset"], listed["output"]["complete"]) == (f"sha256:{asset}", True)
    page = api.client.get(f"{files}/page.html")
    assert page.headers["content-disposition"].startswith("attachment")
    assert (page.headers["x-content-type-options"], page.headers["content-type"]) == (
        "nosniff", "application/octet-stream",
    )  # fmt: skip
    part = api.client.get(f"{files}/sub/run%20%C3%A9.sh", headers={"Range": "bytes=2-4"})
    assert (part.status_code, part.content) == (206, b"234")
    assert api.client.get(f"{files}/sub/none").status_code == 404
    assert api.client.get(f"{files}/%2e%2e%2f%2e%2e%2fetc%2fpasswd").status_code == 404


def test_why_there_is_no_output_is_said(api: ApiService) -> None:
    without = api.create()
    put_trial(api, without, None)
    named = api.client.post(EXPERIMENTS, json=body_with(output="outputs")).json()["id"]
    put_trial(api, named, None)
    put_trial(api, named, TrialOutput(attempt=1, asset="", is_complete=False, message="the disk is full"), number=2)

    def said(trial: str) -> str:
        answer = api.client.get(f"/api/v1/trials/{trial}/files")
        assert answer.status_code == 404
        return str(answer.json()["detail"])

    assert "names no output folder" in said(f"{without}/1")
    assert "left nothing in outputs" in said(f"{named}/1")
    assert "the disk is full" in said(f"{named}/2")
    assert "keeps none" in str(api.client.get(f"/api/v1/trials/{named}/1/files?checkpoint=best").json())
    assert api.client.get(f"/api/v1/trials/{named}/1/files?checkpoint=worst").status_code == 422


def test_paths_are_no_parameters_for_exports_and_tuners(api: ApiService) -> None:
    added(api, a_tree({"a": b"1"}), "digits")
    view = api.client.post(EXPERIMENTS, json=body_with(datasets={"data": "digits"})).json()
    put_trial(api, view["id"], None)

    header = api.client.get(f"{EXPERIMENTS}/{view['id']}/export?format=csv").text.splitlines()[0].split(",")
    trial = api.client.get(f"/api/v1/trials/{view['id']}/1").json()

    assert "parameters.data" not in header
    assert "inputs.data" in header
    assert set(trial["parameters"]) == {"lr", "batch"}
    assert trial["inputs"] == view["inputs"]
