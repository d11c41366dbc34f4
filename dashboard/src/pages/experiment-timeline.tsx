// What ran when, and how well the places were used.
import { useMemo } from "preact/hooks";
import { experimentUrl, read } from "../api/client";
import { useResource } from "../api/resource";
import type { Timeline } from "../api/shapes";
import { Awaited, Stale } from "../parts/awaited";
import { Empty } from "../parts/controls";
import { type Span, TimelinePlot } from "../plots/timeline";
import { duration, moment, percent } from "../state/format";
import { loadedAt, now } from "../state/now";
import type { Parts } from "./experiment-overview";

export function TimelineTab({ view, state, filtered }: Parts) {
  const found = useResource(
    [view.id, "timeline"],
    (signal) => read<Timeline>(experimentUrl(view.id, "/timeline"), signal),
    [view.id],
    1_500,
  );
  const began = moment(view.created_at) ?? 0;
  const { passes } = filtered;
  const timeline = found.data.value;
  const spans = useMemo(() => {
    const all = (timeline ? spansOf(timeline, began) : []).map((span) => {
      // The last attempt of a trial is shown as what the trial came to; those before it as what they were.
      const row = state.trials.rowOf(span.number);
      return row !== undefined && state.trials.attempts[row] === span.attempt
        ? { ...span, status: state.trials.statusOf(row) }
        : span;
    });
    return passes ? all.filter((span) => passes[state.trials.rowOf(span.number) ?? -1] === 1) : all;
  }, [timeline, passes, began, state, filtered]);
  if (!timeline) return <Awaited of={found} what="The timeline" />;
  if (spans.length === 0)
    return (
      <Empty title="Nothing has run yet">
        Every attempt is a bar here, on the device or the core that it held.
      </Empty>
    );
  const at = began + serviceTime(timeline.now_s, loadedAt(timeline), now.value);
  const used = usage(spans, at);
  return (
    <>
      <Stale of={found} what="The timeline" />
      <p class="note">
        {duration(used.busy)} of work in {duration(used.whole)}
        {used.whole > 0 &&
          `: ${percent(Math.min(1, used.busy / (used.whole * used.places)))} of ${used.places === 1 ? "the place" : `${used.places} places`} used`}
        . Drag to zoom, click a bar for its trial.
        {timeline.left_out && " Only the newest attempts are shown."}
      </p>
      <TimelinePlot id={view.id} spans={spans} now={at} />
    </>
  );
}

/** Milliseconds since the experiment began, by the clock of the service, to every other second. */
export function serviceTime(nowS: number, loaded: number, clock: number): number {
  return nowS * 1_000 + Math.floor(Math.max(0, clock - loaded) / 2_000) * 2_000;
}

export function spansOf(timeline: Timeline, began: number): Span[] {
  const { columns, lanes } = timeline;
  const nodes = new Set(lanes.map((lane) => lane.agent)).size;
  const named = lanes.map((lane) => `${nodes > 1 ? `${lane.agent} ` : ""}${lane.kind} ${lane.name}`.trim());
  return columns.number.flatMap((number, row): Span[] => {
    const start = columns.start_s[row];
    const end = columns.end_s[row];
    if (start === null) return [];
    const status = String(columns.status.words[columns.status.codes[row]] ?? "");
    return [
      {
        lane: named[columns.lane[row]],
        number,
        attempt: columns.attempt[row],
        from: began + start * 1_000,
        to: end === null ? null : began + end * 1_000,
        status,
      },
    ];
  });
}

function usage(spans: readonly Span[], at: number): { busy: number; whole: number; places: number } {
  let [busy, first, last] = [0, Number.POSITIVE_INFINITY, 0];
  const places = new Set<string>();
  for (const span of spans) {
    busy += Math.max(0, (span.to ?? at) - span.from) / 1_000;
    first = Math.min(first, span.from);
    last = Math.max(last, span.to ?? at);
    places.add(span.lane);
  }
  return { busy, whole: (last - first) / 1_000, places: places.size };
}
