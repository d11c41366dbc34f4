"""A script's wait for further parameters, without an agent."""

from __future__ import annotations

import json
from pathlib import Path

from trials.phases import AttemptPhases
from trials.reports.sinks import SpoolSink
from trials.wire.encoding import decode_record


def test_where_no_answer_comes_it_asks_again(tmp_path: Path) -> None:
    sink = SpoolSink(tmp_path, None)
    looks = 0

    def is_stopping() -> bool:
        nonlocal looks
        looks += 1
        if looks == 3:
            (tmp_path / "parameters-1.json").write_text(json.dumps({"parameters": {"lr": 0.2}}))
        return False

    found = AttemptPhases(tmp_path, sink, ask_again_s=0.0).wait_for(1, is_stopping=is_stopping)
    sink.close()

    assert found == {"lr": 0.2}
    asked = [decode_record(line) for line in (tmp_path / "reports.jsonl").read_text().splitlines()]
    assert [getattr(record, "index", None) for record in asked] == [1] * 4
