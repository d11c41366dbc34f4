"""What each operation answers, by the name of its handler: for the schema and the tests.

A new route needs a line in OPERATIONS, and the model of its answer in the file of this folder that it belongs to. It is
imported when somebody asks for the schema, so it costs a start nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from tuner_service.api.described import analyses, asked, assets, experiments, nodes, sessions, system, tokens, trials

JSON = "application/json"
ETAG, LOCATION, ATTACHMENT = "ETag", "Location", "Content-Disposition"
HEADERS = {
    ETAG: ("of its content, for `If-None-Match` and `If-Match`", 'W/"1c8a0f"'),
    LOCATION: ("of what was made", "/api/v1/experiments/8f3k2"),
    ATTACHMENT: ("a name for the file", 'attachment; filename="8f3k2.csv"'),
    "Set-Cookie": ("of the session", "tuner_session_0123456789abcdef=…; Path=/; HttpOnly; SameSite=Strict"),
    "Log-Offset": ("where this range begins", "0"),
    "Log-End": ("where it ends", "6"),
    "Log-Size": ("bytes that there are", "6"),
    "Log-Attempt": ("whose log it is", "1"),
    "Log-Ended": ("whether the attempt has ended", "true"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """``model`` of JSON; else ``media``: what it may be, each with an example. None of both: no content."""

    description: str
    model: type[BaseModel] | None = None
    media: Mapping[str, Any] = field(default_factory=dict)
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """``body``: an example of what is sent."""

    answers: Mapping[int, Answer]
    body: Any = None


def _shown(model: type[BaseModel], *, body: Any = None, tagged: bool = False) -> Operation:
    """Of a read, and of a change that shows what there is now."""
    answer = Answer(description="What there is", model=model, headers=(ETAG,) if tagged else ())
    return Operation(answers={200: answer}, body=body)


def _read(model: type[BaseModel]) -> Operation:
    """Of a read with an entity tag."""
    return Operation(
        answers={
            200: Answer(description="What there is", model=model, headers=(ETAG,)),
            304: Answer(description="The client has it already", headers=(ETAG,)),
        }
    )


def _made(model: type[BaseModel], *, body: Any = None, located: bool = True) -> Operation:
    answer = Answer(description="It was made", model=model, headers=(LOCATION,) if located else ())
    return Operation(answers={201: answer}, body=body)


def _file(media: Mapping[str, Any], *headers: str) -> Operation:
    return Operation(answers={200: Answer(description="The file", media=media, headers=(ATTACHMENT, *headers))})


def _picture(media: Mapping[str, Any]) -> Operation:
    return Operation(
        answers={
            200: Answer(description="The picture", media=media, headers=(ETAG, ATTACHMENT)),
            304: Answer(description="The client has it already", headers=(ETAG,)),
        }
    )


_REMOVED = Operation(answers={204: Answer(description="It is gone")})
_DELETED = Operation(
    answers={
        202: Answer(description="It is gone when its many rows are"),
        204: Answer(description="It is gone"),
    }
)
_FILE_EXAMPLE = {
    "name": "digits",
    "objective": {"metric": "accuracy", "goal": "maximize"},
    "search_space": {"lr": {"type": "float", "low": 0.0001, "high": 0.1, "log": True}},
    "budget": {"trials": 20, "parallel": 2},
    "trial": {"command": "python train.py"},
}
_SPACE_EXAMPLE = {"search_space": {"lr": {"type": "float", "low": 0.001, "high": 0.1, "log": True}}}
_CREATED = Operation(
    answers={
        200: Answer(description="With `dry_run`: the resolved file", model=experiments.DryRun),
        201: Answer(description="It was made", model=experiments.ExperimentDetail, headers=(LOCATION,)),
    },
    body=_FILE_EXAMPLE,
)
_GROUP_SET = Operation(
    answers={
        200: Answer(description="It was changed", model=system.QuotaGroup),
        201: Answer(description="It is new", model=system.QuotaGroup),
    },
    body={"gpus": 4, "borrows": True},
)
_ASSET_ADDED = Operation(
    answers={
        200: Answer(description="It was there", model=assets.AssetDetail, headers=(LOCATION,)),
        201: Answer(description="It was made", model=assets.AssetDetail, headers=(LOCATION,)),
    },
    body={"manifest": {"size": 120, "pieces": ["0" * 64]}, "kind": "dataset", "name": "mnist", "keep": True},
)
_OCTETS = {"application/octet-stream": None}
_RANGES = Operation(
    answers={
        200: Answer(description="The whole file", media=_OCTETS, headers=(ATTACHMENT, ETAG)),
        206: Answer(description="The range that was asked for", media=_OCTETS, headers=(ATTACHMENT, ETAG)),
        304: Answer(description="The client has it already", headers=(ETAG,)),
    }
)
_READY = Operation(
    answers={
        200: Answer(description="All is ready", model=system.Readiness),
        503: Answer(description="A part is in trouble", model=system.Readiness),
    }
)

_EVENTS = Operation(
    answers={
        200: Answer(
            description="Events until one side hangs up; docs/rest-api.md says what they hold",
            media={"text/event-stream": {"id": "4711-9f2c51e07ab3d684", "event": "begin", "data": '{"sequence":4711}'}},
        )
    }
)
_EXPOSED = "# HELP tuner_agents Agents that are connected.\n# TYPE tuner_agents gauge\ntuner_agents 1.0\n"
_METRICS = Operation(
    answers={
        200: Answer(
            description="Every measure; docs/operations.md lists them",
            media={"text/plain": _EXPOSED, "application/openmetrics-text": f"{_EXPOSED}# EOF\n"},
        )
    }
)
_SIGNED_IN = Operation(
    answers={201: Answer(description="Signed in", model=sessions.Session, headers=("Set-Cookie",))},
    body={"code": "Xp2h9M_code"},
)

OPERATIONS: Mapping[str, Operation] = {
    # experiments
    "create_experiment": _CREATED,
    "list_experiments": _shown(experiments.Experiments),
    "read_experiment": _read(experiments.ExperimentDetail),
    "change_experiment": _shown(experiments.ExperimentDetail, body={"budget": {"parallel": 4}}, tagged=True),
    "delete_experiment": _DELETED,
    "archive_experiment": _shown(experiments.ExperimentDetail),
    "unarchive_experiment": _shown(experiments.ExperimentDetail),
    "collect_experiments": _shown(experiments.Collected, body={"older_than": "90d", "dry_run": True}),
    "pause_experiment": _shown(experiments.ExperimentDetail),
    "resume_experiment": _shown(experiments.ExperimentDetail, body={"budget": {"trials": 40}}),
    "stop_experiment": _shown(experiments.ExperimentDetail),
    "clone_experiment": _made(experiments.ExperimentDetail, body={"name": "digits again", "seed": 8}),
    "read_journal": _shown(experiments.Journal),
    "read_code_changes": _file({"text/plain": "--- a/train.py\n+++ b/train.py\n"}),
    "export_experiment": _file(
        {
            "text/csv": "number,status,value\n1,succeeded,0.25\n",
            JSON: [{"number": 1, "status": "succeeded", "value": 0.25}],
            "application/jsonl": '{"number":1,"status":"succeeded","value":0.25}\n',
            "application/vnd.apache.parquet": "the bytes of a parquet file",
            **_OCTETS,
        }
    ),
    "import_results": _shown(
        experiments.Imported, body={"results": [{"parameters": {"lr": 0.01}, "value": 0.9}], "outside_space": False}
    ),
    # search spaces
    "read_search_space": _read(experiments.SearchSpaceRevision),
    "change_search_space": _shown(experiments.SearchSpaceRevision, body=_SPACE_EXAMPLE, tagged=True),
    "list_search_spaces": _shown(experiments.SearchSpaceRevisions),
    # trials
    "list_trials": _shown(trials.Trials),
    "read_trial": _read(trials.TrialDetail),
    "add_trial": _made(trials.TrialDetail, body={"parameters": {"lr": 0.01}, "outside_space": False}),
    "retry_trials": _made(trials.Trials, body={"numbers": [3, 7]}, located=False),
    "retry_trial": _made(trials.TrialDetail),
    "stop_trial": _shown(trials.TrialDetail),
    "read_metrics": _shown(trials.Metrics),
    "list_checkpoints": _shown(trials.Checkpoints),
    "read_checkpoint": _file(_OCTETS, ETAG),
    "list_trial_files": _shown(trials.TrialFiles),
    "read_trial_file": _RANGES,
    "read_resources": _shown(trials.Resources),
    "read_log": _file({"text/plain": "step 1\n"}, "Log-Offset", "Log-End", "Log-Size", "Log-Attempt", "Log-Ended"),
    # what is computed of many trials
    "read_table": _read(analyses.Table),
    "read_best": _read(analyses.BestOf),
    "read_pareto": _read(analyses.Pareto),
    "read_slices": _read(analyses.SlicesOfParameters),
    "read_failures": _read(analyses.Failures),
    "read_importance": _read(analyses.ImportanceShares),
    "read_curves": _read(analyses.LearningCurves),
    "read_timeline": _read(analyses.Timeline),
    "draw_png": _picture({"image/png": None}),
    "draw_svg": _picture({"image/svg+xml": "<svg></svg>"}),
    # evaluators that run themselves
    "ask_trial": _shown(asked.AskedTrial),
    "tell_trial": _shown(asked.ToldTrial, body={"token": "ask-5f2c", "step": 3, "value": 0.25}),
    # assets
    "find_missing": _shown(assets.Missing, body={"manifest": {"size": 120, "pieces": ["0" * 64]}, "after": 0}),
    "put_piece": Operation(answers={204: Answer(description="It is there")}),
    "add_asset": _ASSET_ADDED,
    "list_missing_assets": _shown(assets.MissingAssets),
    "list_assets": _shown(assets.Assets),
    "read_asset": _read(assets.AssetDetail),
    "delete_asset": _REMOVED,
    "read_store": _shown(assets.AssetStore),
    "list_versions": _shown(assets.AssetVersions),
    "list_files": _shown(assets.AssetFiles),
    "read_file": _RANGES,
    "read_bytes": _RANGES,
    # events and sessions
    "stream_events": _EVENTS,
    "stream_experiment_events": _EVENTS,
    "make_code": _made(sessions.SessionCode, located=False),
    "sign_in": _SIGNED_IN,
    "read_session": _shown(sessions.Caller),
    "sign_out": _REMOVED,
    "list_sessions": _shown(sessions.Sessions),
    "read_open_session": _read(sessions.Session),
    "end_session": _REMOVED,
    "end_sessions": _shown(sessions.EndedSessions),
    # tokens
    "list_tokens": _shown(tokens.Tokens),
    "read_token": _read(tokens.ListedToken),
    "make_token": _made(tokens.NewToken, body={"name": "ann", "role": "operator", "expires_in": "30d"}, located=False),
    "rotate_token": _made(tokens.NewToken, body={"expires_in": "30d"}, located=False),
    "revoke_token": _REMOVED,
    # the service
    "read_health": _shown(system.Health),
    "read_readiness": _READY,
    "read_version": _shown(system.Version),
    "scrape": _METRICS,
    "list_agents": _shown(nodes.Agents),
    "read_agent": _read(nodes.Agent),
    "list_executors": _shown(system.Executors),
    "list_algorithms": _shown(system.Algorithms),
    "list_devices": _shown(system.Devices),
    "list_quota_groups": _shown(system.QuotaGroups),
    "read_quota_group": _read(system.QuotaGroup),
    "set_quota_group": _GROUP_SET,
    "delete_quota_group": _REMOVED,
    "drain_agent": _REMOVED,
    "cancel_drain": _REMOVED,
    "remove_agent": _REMOVED,
}
