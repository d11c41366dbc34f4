"""What is said to each question, from what is kept of the experiments asked about last."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner_service.analyst.analyses import Analyses, Outcome
from tuner_service.analyst.kept_curves import KeptCurves
from tuner_service.analyst.kept_texts import BYTES_KEPT, KeptTexts
from tuner_service.analyst.kept_trials import KeptTrials
from tuner_service.analyst.table import TableQuestion, table_json
from tuner_service.analyst.timeline import timeline_json
from tuner_service.domain.errors import NotFoundError
from tuner_service.domain.experiment import Experiment, ExperimentId
from tuner_service.ports import Queries
from tuner_service.service.questions import SPANS_LIMIT, Check, Kind, Question, Reply
from tuner_service.service.views import View

TRIALS_KEPT = 300_000  # of all experiments together, but for the one asked about
EXPERIMENTS_KEPT = 50
COMPRESSED_FROM = 4_096  # bytes; a shorter answer is quicker as it is
COMPRESSION = 1  # of zlib's levels: a third of the bytes for a tenth of the time that the best takes


@dataclass(slots=True, kw_only=True)
class _Kept:
    trials: KeptTrials
    texts: KeptTexts
    curves: KeptCurves
    outcomes: Sequence[Outcome] = ()  # as of that revision of the trials
    revision: str = ""


class Answers:
    """One thread asks."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._kept: OrderedDict[ExperimentId, _Kept] = OrderedDict()

    def reply(self, question: Question, check: Check) -> Reply:
        """As ``questions.Analyst`` promises it."""
        experiment = self._queries.experiment(question.experiment_id)
        if experiment is None:
            self._kept.pop(question.experiment_id, None)
            raise NotFoundError("experiment", question.experiment_id)
        body = self._body(experiment, question, check)
        tag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
        compressed = question.compressed and len(body) >= COMPRESSED_FROM
        if compressed:
            body = gzip.compress(body, COMPRESSION, mtime=0)
        return Reply(body=body, tag=tag, compressed=compressed)

    def _body(self, experiment: Experiment, question: Question, check: Check) -> bytes:
        if question.kind is Kind.TABLE:
            return self._table(experiment, question.options, check)
        return self._text(experiment, question, check).encode(errors="replace")

    def _table(self, experiment: Experiment, options: Mapping[str, Any], check: Check) -> bytes:
        asked = {**options, "columns": tuple(options["columns"]), "statuses": tuple(options["statuses"])}
        kept = self._refreshed(experiment, check)
        parts = table_json(kept.trials, kept.texts, TableQuestion(**asked), began=experiment.created_at)
        self._forget_texts()
        return b"".join(parts)

    def _text(self, experiment: Experiment, question: Question, check: Check) -> str:
        options = question.options
        match question.kind:
            case Kind.TIMELINE:
                spans = self._queries.attempt_spans(experiment.id, limit=SPANS_LIMIT + 1)
                return timeline_json(spans, began=experiment.created_at, now=options["now"])
            case Kind.CURVES:
                found, kept = self._analyses(experiment, check), self._kept[experiment.id]
                return _json(found.curves(kept.curves, limit=options["limit"], points=options["points"], check=check))
            case Kind.IMPORTANCE:
                return _json(self._analyses(experiment, check).importance(options.get("metric")))
            case Kind.BEST:
                return _json(self._analyses(experiment, check).best())
            case Kind.PARETO:
                return _json(self._analyses(experiment, check).pareto())
            case Kind.SLICES:
                return _json(self._analyses(experiment, check).slices())
            case Kind.FAILURES:
                return _json(self._analyses(experiment, check).failures())
            case Kind.TABLE:
                raise AssertionError("tables are no text")

    # ── what is kept ────────────────────────────────────────────────────────────────────────────
    def _analyses(self, experiment: Experiment, check: Check) -> Analyses:
        """With the outcomes that were judged last, where no trial has changed since."""
        kept = self._refreshed(experiment, check)
        found = Analyses(
            experiment=experiment,
            trials=kept.trials,
            search_space=self._queries.search_space(experiment.id) or {},
            judged=kept.outcomes if kept.revision == kept.trials.revision else None,
        )
        kept.outcomes, kept.revision = found.outcomes, kept.trials.revision
        return found

    def _refreshed(self, experiment: Experiment, check: Check) -> _Kept:
        kept = self._kept.get(experiment.id)
        if kept is None:
            trials = KeptTrials(self._queries, experiment.id)
            kept = _Kept(
                trials=trials,
                texts=KeptTexts(trials),
                curves=KeptCurves(self._queries, experiment.id, reports_are_cut=experiment.spec.deterministic),
            )
        self._kept[experiment.id] = kept
        self._kept.move_to_end(experiment.id)
        kept.trials.refresh(check)
        while len(self._kept) > 1 and self._is_full():
            self._kept.popitem(last=False)
        return kept

    def _forget_texts(self) -> None:
        """Those of the experiments asked about longest ago, where all together are too long."""
        together = sum(kept.texts.bytes for kept in self._kept.values())
        for kept in self._kept.values():
            if together <= BYTES_KEPT:
                return
            together -= kept.texts.bytes
            kept.texts.forget()

    def _is_full(self) -> bool:
        return len(self._kept) > EXPERIMENTS_KEPT or sum(len(one.trials.entries) for one in self._kept.values()) > (
            TRIALS_KEPT
        )


def _json(view: View) -> str:
    return json.dumps(view, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
