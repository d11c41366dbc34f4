// The value of every trial and the best so far, over trials or over time.
import { useMemo } from "preact/hooks";
import { Switch } from "../parts/controls";
import { amend, go, query, trialPath } from "../state/address";
import type { Trials } from "../state/columns";
import { ago, clock, count, duration, number } from "../state/format";
import { statusWords } from "../state/words";
import { boxOf, drawAxes } from "./axes";
import { csv, Figure, type Painting, type Size } from "./figure";
import {
  bestSoFar,
  drawPoints,
  drawRing,
  drawSteps,
  nearest,
  type Point,
  type Unseen,
  unseenOf,
  unseenWords,
  usefulExtent,
} from "./points";
import { extent, makeScale, padded, type Scale } from "./scales";

interface Props {
  id: string;
  trials: Trials;
  revision: number;
  passes: Uint8Array | null;
  metric: string;
  maximize: boolean;
  now: number;
}

export interface HistoryData {
  points: Point[];
  steps: { x: number; y: number }[];
  x: { low: number; high: number };
  y: { low: number; high: number };
  unseen: Unseen;
}

/** Rows with a value; failed ones have none and lie at the worse edge. */
export function historyData(
  trials: Trials,
  passes: Uint8Array | null,
  maximize: boolean,
  byTime: boolean,
  log: boolean,
): HistoryData | null {
  const points: Point[] = [];
  const values: number[] = [];
  const failed: Point[] = [];
  const undrawn: number[] = [];
  for (let row = 0; row < trials.length; row++) {
    const x = byTime
      ? Number.isNaN(trials.ended[row])
        ? trials.started[row]
        : trials.ended[row]
      : trials.number[row];
    if (Number.isNaN(x)) continue;
    const status = trials.statusOf(row);
    const y = trials.value[row];
    const point = { row, x, y, status, faint: passes !== null && passes[row] === 0 };
    if (Number.isFinite(y) && (!log || y > 0)) {
      points.push(point);
      values.push(y);
    } else if (status === "failed") failed.push(point);
    else if (trials.valued[row] && !point.faint) undrawn.push(y);
  }
  const found = log ? extent(values, true) : usefulExtent(values);
  const xs = extent([...points, ...failed].map((point) => point.x));
  if (!xs && undrawn.length === 0) return null;
  const steps = bestSoFar(
    points.filter((point) => point.status === "succeeded"),
    maximize,
  );
  const best = steps.length > 0 ? steps[steps.length - 1].y : null;
  const y = padded(
    found && best !== null
      ? { low: Math.min(found.low, best), high: Math.max(found.high, best) }
      : (found ?? { low: 0, high: 1 }),
    log,
  );
  const seen = points.filter((point) => !point.faint).map((point) => point.y);
  const edge = maximize ? y.low : y.high;
  for (const point of failed) point.y = edge;
  return {
    points: [...points, ...failed],
    steps,
    x: padded(xs ?? { low: 0, high: 1 }, false, 0.02),
    y,
    unseen: unseenOf([...undrawn, ...seen], log, y),
  };
}

export function zoomOf(text: string | null): { low: number; high: number } | null {
  const [low, high] = (text ?? "").split("..").map(Number);
  return Number.isFinite(low) && Number.isFinite(high) && low < high ? { low, high } : null;
}

export function HistoryPlot(props: Props) {
  const { trials, passes, maximize, revision } = props;
  const byTime = query.value.get("over") === "time";
  const log = query.value.get("log") === "1";
  const zoomText = query.value.get("x");
  const data = useMemo(
    () => historyData(trials, passes, maximize, byTime, log),
    [trials, revision, passes, maximize, byTime, log],
  );
  const painting = useMemo(() => makePainting(data, zoomOf(zoomText), props, byTime, log), [data, zoomText]);
  if (!data) return null;
  const hit = (pointer: { x: number; y: number }, size: Size) => {
    const { x, y } = painting.scales(size);
    return nearest(data.points, x, y, pointer);
  };
  return (
    <Figure
      name="history"
      title={`${props.metric} of every trial`}
      height={280}
      painting={painting}
      cursor="crosshair"
      summary={summaryOf(data, props)}
      csv={() =>
        csv([
          ["number", "status", props.metric, "ended_at"],
          ...data.points.map((p) => [
            trials.number[p.row],
            p.status,
            trials.value[p.row],
            clock(trials.ended[p.row]),
          ]),
        ])
      }
      controls={
        <>
          <Switch
            label="over time"
            on={byTime}
            onChange={(on) => amend({ over: on ? "time" : null, x: null })}
          />
          <Switch label="log" on={log} onChange={(on) => amend({ log: on ? "1" : null })} />
          {zoomText && (
            <button type="button" class="quiet" onClick={() => amend({ x: null })}>
              show all
            </button>
          )}
        </>
      }
      tip={(pointer, size) => {
        const point = hit(pointer, size);
        return point && <TrialTip trials={trials} row={point.row} metric={props.metric} now={props.now} />;
      }}
      onClick={(pointer, size) => {
        const point = hit(pointer, size);
        if (point) go(trialPath(props.id, trials.number[point.row]));
      }}
      onDrag={(from, to, size, done) => {
        painting.dragged = done ? null : [from.x, to.x];
        if (!done) return;
        const { x } = painting.scales(size);
        const [low, high] = [x.invert(Math.min(from.x, to.x)), x.invert(Math.max(from.x, to.x))];
        amend({
          x: `${Number(low.toPrecision(byTime ? 13 : 6))}..${Number(high.toPrecision(byTime ? 13 : 6))}`,
        });
      }}
      onDoubleClick={() => amend({ x: null })}
    >
      {unseenWords(data.unseen) && <p class="note">{unseenWords(data.unseen)}</p>}
    </Figure>
  );
}

type HistoryPainting = Painting & {
  scales(size: Size): { x: Scale; y: Scale };
  dragged: [number, number] | null;
};

function makePainting(
  data: HistoryData | null,
  zoom: { low: number; high: number } | null,
  props: Props,
  byTime: boolean,
  log: boolean,
): HistoryPainting {
  const scales = ({ width, height }: Size) => {
    const box = boxOf(width, height);
    const xs = zoom ?? data?.x ?? { low: 0, high: 1 };
    const x = makeScale(xs, box.left, box.right);
    return {
      x: byTime
        ? { ...x, write: (value: number) => timeTick(value, xs) }
        : { ...x, write: (value: number) => (Number.isInteger(value) ? number(value) : "") },
      y: makeScale(data?.y ?? { low: 0, high: 1 }, box.bottom, box.top, log),
    };
  };
  const painting: HistoryPainting = {
    scales,
    dragged: null,
    paint(pen, size, colours) {
      const box = boxOf(size.width, size.height);
      const { x, y } = scales(size);
      drawAxes(pen, box, x, y, { x: byTime ? "time" : "trial", y: props.metric }, colours);
      if (!data) return;
      drawPoints(pen, box, data.points, x, y, colours);
      drawSteps(pen, box, data.steps, x, y, colours.best, 2.5);
    },
    over(pen, size, colours, pointer) {
      const box = boxOf(size.width, size.height);
      if (painting.dragged) {
        pen.save();
        pen.globalAlpha = 0.15;
        pen.fillStyle = colours.accent;
        const [from, to] = painting.dragged;
        pen.fillRect(Math.min(from, to), box.top, Math.abs(to - from), box.bottom - box.top);
        pen.restore();
      } else if (pointer && data) {
        const { x, y } = scales(size);
        const point = nearest(data.points, x, y, pointer);
        if (point) drawRing(pen, x.at(point.x), y.at(point.y), colours.text);
      }
    },
  };
  return painting;
}

export function timeTick(at: number, { low, high }: { low: number; high: number }): string {
  const text = clock(at);
  if (high - low > 86_400_000) return text.slice(5, 16);
  return high - low > 600_000 ? text.slice(11, 16) : text.slice(11);
}

function summaryOf(data: HistoryData, props: Props): string {
  const last = data.steps[data.steps.length - 1];
  const best = last ? `The best so far is ${number(last.y)}` : "None has a value yet";
  return `${count(data.points.length, "trial")}. ${best}, after ${count(data.steps.length, "improvement")}; lower is ${props.maximize ? "worse" : "better"}. ${unseenWords(data.unseen)}`.trimEnd();
}

export function TrialTip({
  trials,
  row,
  metric,
  now,
}: {
  trials: Trials;
  row: number;
  metric: string;
  now: number;
}) {
  const status = trials.statusOf(row);
  const started = trials.started[row];
  return (
    <>
      <strong>trial {trials.number[row]}</strong>{" "}
      <span class={`status-text ${status}`}>{statusWords(status)}</span>
      <div>
        {metric} {number(trials.value[row], 6)}
      </div>
      <div class="muted">
        {Number.isNaN(trials.ended[row])
          ? `started ${ago(started, now)}`
          : `took ${duration(trials.running[row])}, ended ${ago(trials.ended[row], now)}`}
      </div>
    </>
  );
}
