// How the search goes: history, curves, parameters, what matters, the front.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { experimentUrl, read, readEarly } from "../api/client";
import { outcomesOf } from "../api/live";
import { type Resource, useResource } from "../api/resource";
import {
  type BestAnswer,
  type Curves,
  type ExperimentDetail,
  type Importance,
  objectives,
  type Pareto,
} from "../api/shapes";
import type { TrialsState } from "../api/trials";
import { Awaited, Missing } from "../parts/awaited";
import { Empty, To } from "../parts/controls";
import { FilterField } from "../parts/filter";
import { CurvesPlot } from "../plots/curves";
import { HistoryPlot } from "../plots/history";
import { ImportancePlot } from "../plots/importance";
import { type Axis, type Brush, MANY_LINES, ParallelPlot } from "../plots/parallel";
import { ParetoPlot } from "../plots/pareto";
import { SlicePlot } from "../plots/slices";
import { amend, experimentPath, query, trialPath } from "../state/address";
import type { Trials } from "../state/columns";
import { parameterInFilters } from "../state/filters";
import { number, numeric } from "../state/format";
import { now } from "../state/now";
import { columnOfPath, logNames } from "../state/space";
import { statusWords } from "../state/words";
import { brush, brushesOf, type Filtered } from "./filtered";

const PATIENCE_MS = 1_500; // for what decides the order of the axes; then they are drawn as they are
const SLOW_MS = 1_500; // between two looks at what is computed from all trials
const PACE_MS = 4_000;
const MOST_AXES = 12;
const MOST_AXES_NARROW = 4;
const NARROW = 640; // pixels
const MOST_CHIPS = 24; // of running trials

export interface Parts {
  view: ExperimentDetail;
  state: TrialsState;
  filtered: Filtered;
  /** The reading of `state`. */
  table: Resource<number>;
}

const curvesUrl = (id: string) => experimentUrl(id, "/curves?limit=100&points=200");
const importanceUrl = (id: string, metric: string | null) =>
  experimentUrl(id, `/importance${metric ? `?metric=${encodeURIComponent(metric)}` : ""}`);

/** Begins to read what the overview shows, before it is known what the experiment is. */
export function readOverviewEarly(id: string): void {
  readEarly(curvesUrl(id));
  readEarly(importanceUrl(id, query.peek().get("metric")));
  readEarly(experimentUrl(id, "/best"));
}

export function OverviewTab({ view, state, filtered, table }: Parts) {
  const { id } = view;
  const { trials } = state;
  const { revision, passes } = filtered;
  const goals = objectives(view);
  const [objective] = goals;
  const curves = useResource([id, "curves"], (signal) => read<Curves>(curvesUrl(id), signal), [id], SLOW_MS);
  const metric = query.value.get("metric");
  const importance = useResource(
    [id, "importance", metric],
    (signal) => read<Importance>(importanceUrl(id, metric), signal),
    [outcomesOf(id)],
    SLOW_MS,
  );
  const best = useResource(
    [id, "best"],
    (signal) => read<BestAnswer>(experimentUrl(id, "/best"), signal),
    [outcomesOf(id)],
    SLOW_MS,
  );
  const pareto = useResource(
    [id, "pareto", goals.length],
    (signal) =>
      goals.length > 1 ? read<Pareto>(experimentUrl(id, "/pareto"), signal) : Promise.resolve(null),
    [outcomesOf(id)],
    SLOW_MS,
  );
  const maximize = objective?.goal === "maximize";
  const waited = useElapsed(PATIENCE_MS);
  const isOrdered = waited || importance.data.value !== undefined || importance.problem.value !== undefined;
  const axes = useAxes(trials, revision, view, importance.data.value);
  // Ten thousand lines are drawn again every few seconds while trials go on, and at once when the filter changes.
  const settled = usePaced(revision, trials.length > MANY_LINES ? PACE_MS : 0);
  const parallelAxes = useAxes(trials, settled, view, importance.data.value);
  const parallelPasses = useMemo(() => passes, [settled, filtered.text]);
  const brushes = useMemo(() => brushesFor(filtered, parallelAxes), [filtered.text, parallelAxes]);
  if (revision === 0) return <Awaited of={table} what="The trials" />;
  if (trials.length === 0)
    return (
      <Empty title="No trial yet" {...(view.status === "running" ? {} : { command: `tuner resume ${id}` })}>
        {view.status === "running"
          ? "The tuner is being asked for the first one."
          : "What stands above says why. Once that is mended, Resume goes on; so does:"}
      </Empty>
    );
  const slice = query.value.get("slice") ?? axes[0]?.name.replace(/\._name$/, "") ?? null;
  const sliceAxis = axes.find((axis) => axis.name === slice || axis.name === `${slice}._name`);
  const shared = { id, trials, revision, passes, metric: objective?.metric ?? "value", now: now.value };
  const passesNumber = passes ? (number_: number) => passes[trials.rowOf(number_) ?? -1] === 1 : null;
  return (
    <>
      <FilterField filtered={filtered} total={trials.length} />
      {best.data.value?.outlook && (
        <p class="outlook">
          <span aria-hidden="true">◔ </span>
          {best.data.value.outlook.message}
        </p>
      )}
      <Running view={view} />
      <div class="plots">
        <HistoryPlot {...shared} maximize={maximize} />
        {curves.data.value && (
          <CurvesPlot
            id={id}
            curves={curves.data.value}
            best={view.best?.number ?? null}
            shows={passesNumber}
          />
        )}
        {!view.archive && <Missing of={curves} what="Learning curves" />}
        <Missing of={pareto} what="The front" />
        {pareto.data.value && <ParetoPlot id={id} pareto={pareto.data.value} />}
        <div class="wide">
          <ParallelPlot
            trials={trials}
            revision={settled}
            axes={parallelAxes}
            brushes={brushes}
            passes={parallelPasses}
            metric={shared.metric}
            maximize={maximize}
            waits={!isOrdered}
            onBrush={(axis, found) => putBrush(filtered, axis, found)}
          />
        </div>
        <Missing of={importance} what="What matters" />
        <Missing of={best} what="Outlook" />
        {importance.data.value && (
          <ImportancePart
            importance={importance.data.value}
            slice={slice}
            metrics={goals.map((one) => one.metric)}
          />
        )}
        {sliceAxis && <SlicePlot {...shared} axis={sliceAxis} height={260} />}
      </div>
      {view.best && <Slices axes={axes.slice(0, -1).filter((axis) => axis !== sliceAxis)} shared={shared} />}
    </>
  );
}

function ImportancePart({
  importance,
  slice,
  metrics,
}: {
  importance: Importance;
  slice: string | null;
  metrics: string[];
}) {
  const chosen = Object.keys(importance.importance).length > 0;
  return (
    <div class={chosen ? "" : "short"}>
      {metrics.length > 1 && (
        <label class="inline">
          of{" "}
          <select
            value={importance.metric}
            onChange={(event) => amend({ metric: event.currentTarget.value })}
          >
            {metrics.map((one) => (
              <option key={one} value={one}>
                {one}
              </option>
            ))}
          </select>
        </label>
      )}
      {chosen ? (
        <ImportancePlot
          importance={importance}
          chosen={slice}
          onChoose={(name) => amend({ slice: slice === name ? null : name })}
        />
      ) : (
        <div class="figure">
          <h3>What matters</h3>
          <p class="note">{importance.message}</p>
        </div>
      )}
    </div>
  );
}

function Slices({ axes, shared }: { axes: Axis[]; shared: Omit<Parameters<typeof SlicePlot>[0], "axis"> }) {
  const all = query.value.get("slices") === "all";
  return (
    <details
      class="slices"
      open={all}
      onToggle={(event) => {
        if (event.currentTarget.open !== all) amend({ slices: event.currentTarget.open ? "all" : null });
      }}
    >
      <summary>Every parameter against the value</summary>
      {all && (
        <div class="plots small">
          {axes.map((axis) => (
            <SlicePlot key={axis.name} {...shared} axis={axis} />
          ))}
        </div>
      )}
    </details>
  );
}

/** `value`, taken over at most so often. */
function usePaced(value: number, pace: number): number {
  const shown = useSignal(value);
  const last = useRef(Number.NEGATIVE_INFINITY);
  useEffect(() => {
    if (shown.peek() === value) return;
    const wait = Math.max(0, last.current + pace - performance.now());
    const timer = setTimeout(() => {
      last.current = performance.now();
      shown.value = value;
    }, wait);
    return () => clearTimeout(timer);
  }, [value, pace, shown]);
  return pace === 0 ? value : shown.value;
}

/** Whether this part of the page has been there for so long. */
function useElapsed(patience: number): boolean {
  const elapsed = useSignal(false);
  useEffect(() => {
    const timer = setTimeout(() => {
      elapsed.value = true;
    }, patience);
    return () => clearTimeout(timer);
  }, [patience, elapsed]);
  return elapsed.value;
}

/** The parameters that matter first, at most twelve, and the value at the right. */
export function useAxes(
  trials: Trials,
  revision: number,
  view: ExperimentDetail,
  importance: Importance | undefined,
): Axis[] {
  const order = importance ? Object.keys(importance.importance).map(columnOfPath).join("\n") : "";
  return useMemo(() => {
    const logs = logNames(view.search_space);
    const rank = new Map(order.split("\n").map((name, place) => [name, place]));
    const place = (name: string) => rank.get(name) ?? rank.get(name.replace(/\._name$/, "")) ?? 1_000;
    const columns = [...trials.parameters.values()]
      .sort((one, other) => place(one.name) - place(other.name))
      .slice(0, innerWidth < NARROW ? MOST_AXES_NARROW : MOST_AXES);
    const axes: Axis[] = columns.map((column) => ({
      name: column.name,
      filter: parameterInFilters(column.name),
      data: column.data,
      labels: column.kind === "category" ? [...column.labels] : null,
      log: logs.has(column.name),
    }));
    return [
      ...axes,
      {
        name: objectives(view)[0]?.metric ?? "value",
        filter: "value",
        data: trials.value,
        labels: null,
        log: false,
      },
    ];
  }, [trials, revision, order, view.id]);
}

function brushesFor(filtered: Filtered, axes: readonly Axis[]): Map<string, Brush> {
  const found = new Map<string, Brush>();
  for (const { name, part } of brushesOf(filtered.filter)) {
    const axis = axes.find((one) => one.filter === name);
    if (axis && part.is === "range") found.set(axis.filter, { low: part.low, high: part.high });
    if (axis?.labels && part.is === "among") {
      const places = part.values
        .map((value) => axis.labels?.indexOf(value) ?? -1)
        .filter((place) => place >= 0);
      if (places.length > 0)
        found.set(axis.filter, { low: Math.min(...places) - 0.4, high: Math.max(...places) + 0.4 });
    }
  }
  return found;
}

function putBrush(filtered: Filtered, axis: Axis, found: Brush | null): void {
  const name = axis.filter;
  if (!found) return brush(filtered.filter, name, null);
  if (axis.labels) {
    const values = axis.labels.filter((_, place) => place >= found.low && place <= found.high);
    return brush(filtered.filter, name, values.length > 0 ? { is: "among", name, values } : null);
  }
  brush(filtered.filter, name, {
    is: "range",
    name,
    low: Number(found.low.toPrecision(4)),
    high: Number(found.high.toPrecision(4)),
  });
}

function Running({ view }: { view: ExperimentDetail }) {
  if (view.running.length === 0) return null;
  return (
    <section class="now" aria-label="What runs now">
      {view.running.slice(0, MOST_CHIPS).map((one) => (
        <To
          key={`${one.number}.${one.attempt}`}
          to={trialPath(view.id, one.number)}
          class="chip"
          title={`${statusWords(one.status)}, ${one.agent ? `process ${one.pid ?? "not yet"} on ${one.agent}` : "held by an evaluator"}`}
        >
          <span aria-hidden="true" class="pulse" />
          trial {one.number}
          <span class="muted">
            {one.step === null ? "starts" : `step ${number(one.step)}, ${number(numeric(one.value))}`}
          </span>
        </To>
      ))}
      {view.running.length > MOST_CHIPS && (
        <To to={experimentPath(view.id, { tab: "trials", q: "status = running" })}>
          and {number(view.running.length - MOST_CHIPS)} more
        </To>
      )}
    </section>
  );
}
