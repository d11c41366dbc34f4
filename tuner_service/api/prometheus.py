"""What Prometheus reads: the measures of the service in its text formats.

No label names an experiment, a trial, an agent or anything else that somebody chose, so that the number of series is
fixed by the code. What is read costs as much as there are experiments and devices, and is made on a thread of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from tuner_service.dispatcher.totals import Totals
from tuner_service.service.experiments import Services
from tuner_service.service.measures import Histogram, RequestMeasures
from tuner_service.service.warned import About

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import HistogramMetricFamily, Metric

DEVICE_STATES = ("free", "held", "occupied", "lost")
# The library takes any version that a client names for one, raises for some and repeats the others in its answer.
_KNOWN_FORMAT = re.compile(
    r"(?:application/openmetrics-text|text/plain)(?:;version=(?:0\.0\.1|0\.0\.4|1\.0\.0)|;escaping=[a-z0-9-]{1,20}"
    r"|;q=[0-9.]{1,5}|;charset=utf-8)*"
)


@dataclass(kw_only=True)
class Exposition:
    """One for each application, with a registry of its own. ``text`` is called on one thread at a time."""

    services: Services
    requests: RequestMeasures
    thread: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="metrics")  # begun with the first request
    )
    _registry: CollectorRegistry | None = None

    def text(self, accept: str) -> tuple[bytes, str]:
        """All measures as they are now, and the content type: of the formats that ``accept`` names, one we know."""
        # Imported when somebody asks: 50 ms of a start.
        from prometheus_client import CollectorRegistry, ProcessCollector
        from prometheus_client.exposition import choose_encoder

        if self._registry is None:
            registry = CollectorRegistry(auto_describe=False)
            registry.register(ServiceCollector(self.services, self.requests))
            ProcessCollector(registry=registry)
            self._registry = registry
        named = (entry.replace(" ", "") for entry in accept.split(","))
        encode, content_type = choose_encoder(",".join(entry for entry in named if _KNOWN_FORMAT.fullmatch(entry)))
        return encode(self._registry), content_type


class ServiceCollector:
    """Asked for every measure at each scrape; nothing is counted twice for it."""

    def __init__(self, services: Services, requests: RequestMeasures) -> None:
        self._services, self._requests = services, requests

    def collect(self) -> Iterator[Metric]:
        yield from self._of_service()
        totals = self._services.runner.totals()
        if totals is not None:  # else nobody knows: samples that are missing say so
            yield from self._of_experiments(totals)
        yield from self._of_runner()
        yield from self._of_requests()

    def _of_service(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily

        services = self._services
        yield InfoMetricFamily("tuner_build", "Version of the service.", value={"version": services.version})
        parts = {name: float(state == "ok") for name, state in services.runner.readiness().items()}
        yield _gauges(
            "tuner_part_ready", "Whether a part of the service works (1) or is in trouble (0).", "part", parts
        )
        given = services.warnings()
        warned = {about.value: float(about in given) for about in About}
        yield _gauges("tuner_warning", "Whether something will be trouble unless somebody acts.", "about", warned)
        count = len(services.hub.agents())
        yield GaugeMetricFamily("tuner_agents", "Agents that are connected.", value=count)
        count = services.events.count
        yield GaugeMetricFamily("tuner_event_streams", "Streams of events that are open.", value=count)
        count = services.workers()
        yield GaugeMetricFamily("tuner_worker_processes", "Processes of tuners and assessors.", value=count)
        if (database := services.config.database_file) is not None:
            sizes = {"database": _size(database), "log": _size(database.with_name(database.name + "-wal"))}
            yield _gauges(
                "tuner_database_bytes", "Size of the database file, and of its write-ahead log.", "file", sizes
            )

    def _of_experiments(self, totals: Totals) -> Iterator[Metric]:
        yield _gauges("tuner_experiments", "Experiments by status.", "status", totals.experiments)
        yield _gauges("tuner_trials", "Trials of all experiments by status.", "status", totals.trials)
        yield _gauges("tuner_queue_lines", "Journal lines that wait for an algorithm.", "queue", totals.queues)
        states = dict.fromkeys(DEVICE_STATES, 0)
        for agent_id, devices in self._services.hub.devices().items():
            for device in devices:
                is_held = (agent_id, device.uuid) in totals.held
                states["lost" if device.lost else "held" if is_held else "occupied" if device.occupied else "free"] += 1
        yield _gauges("tuner_devices", "Devices of the agents that are connected, by state.", "state", states)

    def _of_runner(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        runner, measures = self._services.runner, self._services.runner.measures
        count = runner.waiting()
        yield GaugeMetricFamily(
            "tuner_inbox_commands", "Commands that wait to be taken by the dispatcher.", value=count
        )
        yield CounterMetricFamily("tuner_reports", "Reports of trials that were stored.", value=measures.reports)
        text = "Steps of the dispatcher that could not be saved; each is taken back and its senders try again."
        yield CounterMetricFamily("tuner_failed_steps", text, value=measures.failed_steps)
        yield _histogram(
            "tuner_commit_duration_seconds", "Time of a transaction, until it is on the disk.", measures.commit
        )
        text = "From a report by its trial's clock until it is stored and acknowledged; of each message the oldest one."
        yield _histogram("tuner_report_lag_seconds", text, measures.report_lag)
        text = "From the end of an attempt until the next one of its experiment is launched in its place."
        yield _histogram("tuner_dispatch_latency_seconds", text, measures.dispatch)

    def _of_requests(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

        counter = CounterMetricFamily(
            "tuner_http_requests",
            "Requests by the template of their route and the class of the answer's status.",
            labels=("method", "route", "status"),
        )
        for request, count in sorted(self._requests.answered.copy().items(), key=lambda entry: str(entry[0])):
            counter.add_metric((request.method, request.route, request.status), count)
        yield counter
        durations = HistogramMetricFamily(
            "tuner_http_request_duration_seconds",
            "Time of a request until its answer begins.",
            labels=("method", "route"),
        )
        for labels, histogram in sorted(self._requests.durations.copy().items()):
            _add_histogram(durations, labels, histogram)
        yield durations


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    family = GaugeMetricFamily(name, text, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family


def _histogram(name: str, text: str, histogram: Histogram) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    family = HistogramMetricFamily(name, text, labels=())
    _add_histogram(family, (), histogram)
    return family


def _add_histogram(family: HistogramMetricFamily, labels: Iterable[str], histogram: Histogram) -> None:
    """Its count is that of its buckets, whatever is counted meanwhile; only the sum may know one value more."""
    total, counts = histogram.total, histogram.counts.copy()
    bounds = [*map(str, histogram.bounds), "+Inf"]
    family.add_metric(tuple(labels), list(zip(bounds, accumulate(counts), strict=True)), total)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0  # no log is there before the first write
