"""What a program is given as a table of pandas: numbers are numbers there, and times are times."""

from __future__ import annotations

import json

import pandas as pd

from tests.builders import START, a_trial
from tuner_service.cli.verbs.export import flat_trial
from tuner_service.program.reading import frame_of
from tuner_service.service.views import moment, trial_view


def test_every_time_of_a_trial_is_a_time() -> None:
    ended, going = a_trial(number=1, started_at=START, ended_at=START + 9), a_trial(number=2, started_at=START)
    views = [trial_view(ended, now=START), trial_view(going, now=START, reported_at=START + 5)]
    names = [name for name, value in views[1].items() if name.endswith("_at") or value == moment(START)]

    frame = frame_of([flat_trial(json.loads(json.dumps(view))) for view in views], metrics=False)

    assert {name for name in names if not pd.api.types.is_datetime64_any_dtype(frame[name])} == set()
    assert frame.loc[2, "reported_at"] == pd.Timestamp(moment(START + 5))
    assert pd.isna(frame.loc[1, "reported_at"])
