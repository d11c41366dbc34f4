"""What is accepted is shown, exported, cloned and imported as it was sent."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api_service import a_body, an_api_service
from tests.contract.extremes import PARAMETERS, RANGES
from tuner_service.domain.search_space import parse_search_space

SPACES = st.dictionaries(st.sampled_from(["a", "b.c", "d\ne"]), RANGES, min_size=1, max_size=2)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(space=SPACES, strange=PARAMETERS)
def test_an_extreme_space_and_extreme_parameters_come_back(space: dict[str, Any], strange: dict[str, Any]) -> None:
    api = an_api_service()
    created = api.client.post("/api/v1/experiments", json=a_body(search_space=space, tuner={"name": "random"}))
    assert created.status_code in {201, 422}, created.text
    if created.status_code == 422:
        return
    path = f"/api/v1/experiments/{created.json()['id']}"
    assert api.client.get(f"{path}/search-space").json()["search_space"] == space

    drawn = parse_search_space(space).sample(random.Random(1))
    taken = []
    for parameters, outside in ((drawn, False), (strange, True)):
        added = api.client.post(f"{path}/trials", json={"parameters": parameters, "outside_space": outside})
        assert added.status_code == 201 or (outside and added.status_code == 422), added.text
        taken += [parameters] if added.status_code == 201 else []
    trials = api.client.get(f"{path}/trials").json()["items"]
    assert [trial["parameters"] for trial in trials] == taken
    exported = api.client.get(f"{path}/export?format=jsonl").text.strip().split("\n")
    assert [json.loads(line)["parameters"] for line in exported] == taken
    for place in ("", "/table", "/export", "/export?format=csv", "/journal"):
        assert api.client.get(path + place).status_code == 200

    cloned = api.client.post(f"{path}/clone", json={})
    assert cloned.status_code == 201, cloned.text
    other = f"/api/v1/experiments/{cloned.json()['id']}"
    assert api.client.get(f"{other}/search-space").json()["search_space"] == space
    results = [{"parameters": parameters, "value": "-Infinity"} for parameters in taken]
    imported = api.client.post(f"{other}/import", json={"results": results, "outside_space": True})
    assert imported.status_code == 200, imported.text
