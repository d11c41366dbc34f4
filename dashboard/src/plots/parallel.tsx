// Parallel coordinates: a line for each trial, coloured by its value in 64 bins of one path each. Dragging along an axis
// filters everything; ten thousand lines are drawn in portions, so that a drag never waits.
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { Trials } from "../state/columns";
import { count, number } from "../state/format";
import { boxOf, clipMiddle, clipText } from "./axes";
import { BINS, binColour, type Colours } from "./colours";
import { csv, Figure, FONT, type Painting, type Pointer, type Size } from "./figure";
import { categoryScale, extent, makeScale, padded, type Scale } from "./scales";
import type { Pen } from "./svg";

export interface Axis {
  name: string;
  /** Its name in filters. */
  filter: string;
  data: Float64Array;
  /** Of texts by their place; null for numbers. */
  labels: readonly string[] | null;
  log: boolean;
}

export interface Brush {
  low: number;
  high: number;
}

interface Props {
  trials: Trials;
  revision: number;
  axes: readonly Axis[];
  /** By the names of axes in filters. */
  brushes: ReadonlyMap<string, Brush>;
  passes: Uint8Array | null;
  metric: string;
  maximize: boolean;
  /** The order of the axes is not known yet: nothing is drawn in vain. */
  waits: boolean;
  onBrush(axis: Axis, brush: Brush | null): void;
}

const PORTION_LINES = 100; // of one stroke, which takes longer the more of them cross
// Strokes of one frame while somebody drags. A canvas only notes a stroke and draws it later, so that how long it took
// is told by when the next frame comes.
const STROKES_BELOW = 12; // of what lies below, where nobody drags
const LEAST_STROKES = 1;
const MOST_STROKES = 40;
const LATE_MS = 34;
const EARLY_MS = 21;
const SAMPLES = 8; // of the lines, each spread over all of them: what is seen first is seen of every part
export const MANY_LINES = 3_000;
const TOP = 34;
const FOOT = 18; // below the axes
const ABSENT = 26; // below the scales, for the lines of trials without the parameter
const LETTER = 6.9; // pixels of one in the name of an axis, about
const FIRST_WORDS = 6; // characters beside the first axis, where the figure ends

export interface Lines {
  /** Rows with a value, worst first, so that the best lie on top. */
  rows: Int32Array;
  /** The bin of the value of each of them. */
  bins: Uint8Array;
}

/** Ranks, not values: a few outliers would leave everything else in one colour. */
export function binned(trials: Trials, maximize: boolean): Lines {
  const rows: number[] = [];
  for (let row = 0; row < trials.length; row++) if (Number.isFinite(trials.value[row])) rows.push(row);
  const sign = maximize ? 1 : -1;
  rows.sort((one, other) => sign * (trials.value[one] - trials.value[other]));
  const bins = new Uint8Array(rows.length);
  for (let place = 0; place < rows.length; place++)
    bins[place] = Math.floor((place / Math.max(1, rows.length - 1)) * (BINS - 1));
  return { rows: Int32Array.from(rows), bins };
}

/** Whether the trial had not this parameter: a condition left it out. */
function isAbsent(axis: Axis, row: number): boolean {
  const value = axis.data[row];
  return Number.isNaN(value) || (axis.labels !== null && value < 0);
}

/** The axes that some of the lines have no value on. */
export function withAbsent(lines: Lines, axes: readonly Axis[]): ReadonlySet<Axis> {
  return new Set(axes.filter((axis) => lines.rows.some((row) => isAbsent(axis, row))));
}

/** How many trials have a value that is NaN or infinite, so that no line can end there. */
export function endless(trials: Trials): number {
  let found = 0;
  for (let row = 0; row < trials.length; row++)
    if (trials.valued[row] && !Number.isFinite(trials.value[row])) found++;
  return found;
}

export function axisScale(axis: Axis, rows: Int32Array, from: number, to: number): Scale {
  if (axis.labels) return categoryScale(axis.labels, from, to);
  const values = function* () {
    for (const row of rows) yield axis.data[row];
  };
  const found = extent(values(), axis.log) ?? { low: 0, high: 1 };
  return makeScale(padded(found, axis.log, 0.02), from, to, axis.log);
}

export function ParallelPlot(props: Props) {
  const { trials, revision, axes, passes, maximize } = props;
  const lines = useMemo(() => binned(trials, maximize), [trials, revision, maximize]);
  const leftOut = useMemo(() => endless(trials), [trials, revision]);
  const live = useRef<{ axis: number; brush: Brush } | null>(null);
  const painting = useMemo(
    () =>
      props.waits ? { ...makePainting(lines, props), paint: () => undefined } : makePainting(lines, props),
    [lines, axes, props.brushes, passes, props.waits],
  );
  useEffect(() => () => painting.stop(), [painting]);
  if (lines.rows.length === 0 || axes.length < 2) return null;
  const axisAt = (pointer: Pointer, size: Size) => {
    const places = painting.places(size);
    const found = places.findIndex(
      (place) => Math.abs(place - pointer.x) < Math.max(12, Math.min(30, (places[1] - places[0]) / 3)),
    );
    return found;
  };
  return (
    <Figure
      name="parallel-coordinates"
      title="Parameters of every trial"
      height={320}
      painting={painting}
      cursor="row-resize"
      summary={`${count(lines.rows.length, "trial")} over ${count(axes.length, "axis", "axes")}: ${axes.map((axis) => axis.name).join(", ")}. The filter above does what dragging along an axis does.`}
      csv={() =>
        csv([
          ["number", ...axes.map((axis) => axis.name)],
          ...[...lines.rows].map((row) => [
            trials.number[row],
            ...axes.map((axis) => (axis.labels ? axis.labels[axis.data[row]] : axis.data[row])),
          ]),
        ])
      }
      onDrag={(from, to, size, done) => {
        const index = axisAt(from, size);
        if (index < 0) return;
        const axis = axes[index];
        const scale = painting.scale(index, size);
        const ends = [scale.invert(from.y), scale.invert(to.y)].sort((one, other) => one - other);
        const brush = { low: ends[0], high: ends[1] };
        live.current = done ? null : { axis: index, brush };
        painting.live = live.current;
        if (done) props.onBrush(axis, brush);
      }}
      onClick={(pointer, size) => {
        const index = axisAt(pointer, size);
        if (index >= 0 && props.brushes.has(axes[index].filter)) props.onBrush(axes[index], null);
      }}
      tip={(pointer, size) => {
        const index = axisAt(pointer, size);
        if (index < 0) return null;
        const scale = painting.scale(index, size);
        const value = scale.invert(pointer.y);
        return (
          <>
            <strong>{axes[index].name}</strong>
            <div>{axes[index].labels ? (axes[index].labels?.[Math.round(value)] ?? "") : number(value)}</div>
            <div class="muted">
              {props.brushes.has(axes[index].filter) ? "click to take the filter away" : "drag to filter"}
            </div>
          </>
        );
      }}
    >
      <p class="note key">
        <span class="ramp" aria-hidden="true" /> worse to better {props.metric}, by rank
        {leftOut > 0 && `; ${count(leftOut, "trial")} with NaN or an infinite value left out`}
      </p>
    </Figure>
  );
}

type ParallelPainting = Painting & {
  live: { axis: number; brush: Brush } | null;
  places(size: Size): number[];
  scale(axis: number, size: Size): Scale;
  stop(): void;
};

function makePainting(lines: Lines, props: Props): ParallelPainting {
  const { axes, brushes, passes } = props;
  let frame = 0;
  let below: (() => void) | null = null; // ends the drawing of what lies below
  let strokes = 4; // of a frame; what was learnt stays for the next move
  let scales: { height: number; found: Scale[]; ys: Float32Array[] } | null = null;
  const absent = withAbsent(lines, axes);
  const box = (size: Size) => ({
    ...boxOf(size.width, size.height, 40),
    top: TOP,
    bottom: size.height - FOOT - (absent.size > 0 ? ABSENT : 0),
    right: size.width - 44,
  });
  const places = (size: Size) => {
    const { left, right } = box(size);
    return axes.map((_, index) => left + (index / Math.max(1, axes.length - 1)) * (right - left));
  };
  const measured = (size: Size) => {
    if (scales?.height !== size.height) {
      const { top, bottom } = box(size);
      const found = axes.map((axis) => axisScale(axis, lines.rows, bottom, top));
      scales = { height: size.height, found, ys: heightsOf(lines, axes, found, size.height - FOOT) };
    }
    return scales;
  };
  const scalesOf = (size: Size) => measured(size).found;
  const workOf = (size: Size, inside: Work["inside"]): Work => ({
    lines,
    ys: measured(size).ys,
    xs: places(size),
    inside,
  });
  const drawOver = (portions: Generator<void>) => {
    let before = 0;
    const next = (at: number) => {
      // One frame after another, or the time between them says nothing.
      if (before > 0 && at - before > LATE_MS) strokes = Math.max(LEAST_STROKES, strokes / 2);
      else if (before > 0 && at - before < EARLY_MS) strokes = Math.min(MOST_STROKES, strokes * 1.25);
      before = at;
      for (let stroke = 0; stroke < strokes; stroke++) if (portions.next().done) return;
      frame = requestAnimationFrame(next);
    };
    frame = requestAnimationFrame(next);
  };
  const painting: ParallelPainting = {
    live: null,
    places,
    scale: (axis, size) => scalesOf(size)[axis],
    stop: () => {
      cancelAnimationFrame(frame);
      below?.();
    },
    paint(pen, size, colours) {
      below?.();
      const work = workOf(size, (place) => passes === null || passes[lines.rows[place]] === 1);
      const portions = drawAll(pen, work, colours, passes !== null);
      const finish = () =>
        drawAxisLines(pen, size, axes, absent, scalesOf(size), places(size), brushes, colours);
      const canvas = shownCanvas(pen);
      if (!canvas || lines.rows.length <= MANY_LINES) {
        for (const _ of portions) {
          // at once: every portion
        }
        finish();
        return;
      }
      finish(); // where what follows belongs
      canvas.dataset.drawing = "true";
      let at = 0;
      const ended = () => {
        cancelAnimationFrame(at);
        delete canvas.dataset.drawing;
        below = null;
      };
      const next = () => {
        for (let stroke = 0; stroke < STROKES_BELOW; stroke++)
          if (portions.next().done) {
            finish();
            return ended();
          }
        at = requestAnimationFrame(next);
      };
      below = ended;
      next();
    },
    over(pen, size, colours) {
      const { live } = painting;
      cancelAnimationFrame(frame);
      (pen as CanvasRenderingContext2D).clearRect?.(0, 0, size.width, size.height);
      if (!live) return;
      // While one drags, what is left out is covered at once, and what stays is drawn in portions above that.
      pen.save();
      pen.globalAlpha = 0.86;
      pen.fillStyle = colours.surface;
      pen.fillRect(0, TOP - 6, size.width, size.height - TOP - 8);
      pen.restore();
      const { axis, brush } = live;
      const column = axes[axis].data;
      const inside = (place: number) => {
        const row = lines.rows[place];
        return (
          column[row] >= brush.low && column[row] <= brush.high && (passes === null || passes[row] === 1)
        );
      };
      drawAxisLines(
        pen,
        size,
        axes,
        absent,
        scalesOf(size),
        places(size),
        new Map([...brushes, [axes[axis].filter, brush]]),
        colours,
      );
      drawOver(drawSample(pen, workOf(size, inside), colours));
    },
  };
  return painting;
}

/** The canvas on the page that a pen draws on; null where it draws a file. */
function shownCanvas(pen: Pen): HTMLCanvasElement | null {
  const { canvas } = pen as Partial<CanvasRenderingContext2D>;
  return canvas?.isConnected ? canvas : null;
}

interface Work {
  lines: Lines;
  ys: Float32Array[];
  xs: number[];
  inside(place: number): boolean;
}

/** Where each line crosses each axis. */
function heightsOf(
  lines: Lines,
  axes: readonly Axis[],
  scales: readonly Scale[],
  foot: number,
): Float32Array[] {
  return axes.map((axis, index) => {
    const found = new Float32Array(lines.rows.length);
    for (let place = 0; place < lines.rows.length; place++) {
      const row = lines.rows[place];
      found[place] = isAbsent(axis, row) ? foot : scales[index].at(axis.data[row]);
    }
    return found;
  });
}

function addLine(pen: Pen, work: Work, place: number): void {
  pen.moveTo(work.xs[0], work.ys[0][place]);
  for (let axis = 1; axis < work.xs.length; axis++) pen.lineTo(work.xs[axis], work.ys[axis][place]);
}

/** What is left out, faintly, and all others above it, the best last; a portion after some lines. */
function* drawAll(pen: Pen, work: Work, colours: Colours, filtered: boolean): Generator<void> {
  const total = work.lines.rows.length;
  if (filtered) {
    const begin = () => {
      pen.lineWidth = total > MANY_LINES ? 0.6 : 1;
      pen.lineJoin = "round";
      pen.strokeStyle = colours.grid;
      pen.globalAlpha = 0.5;
      pen.beginPath();
    };
    begin();
    let inPath = 0;
    for (let place = 0; place < total; place++) {
      if (work.inside(place)) continue;
      addLine(pen, work, place);
      if (++inPath < PORTION_LINES) continue;
      pen.stroke();
      yield;
      begin();
      inPath = 0;
    }
    pen.stroke();
  }
  yield* drawPortions(pen, work, colours);
}

/** All of them, in samples that are each spread over the whole: the first of them shows nearly what all will. */
function* drawSample(pen: Pen, work: Work, colours: Colours): Generator<void> {
  const samples = work.lines.rows.length > MANY_LINES ? SAMPLES : 1;
  for (let first = 0; first < samples; first++) yield* drawPortions(pen, work, colours, first, samples);
}

/** Every `step`th line. One path for each bin, a portion after some of its lines. */
function* drawPortions(pen: Pen, work: Work, colours: Colours, first = 0, step = 1): Generator<void> {
  const total = work.lines.rows.length;
  let bin = -1;
  let inPath = 0;
  const begin = (next: number) => {
    bin = next;
    pen.globalAlpha = total > 3_000 ? 0.35 : total > 500 ? 0.5 : 0.75;
    pen.lineWidth = total > 3_000 ? 0.7 : 1.2;
    pen.strokeStyle = binColour(bin, colours.dark);
    pen.beginPath();
  };
  for (let place = first; place < total; place += step) {
    if (!work.inside(place)) continue;
    if (work.lines.bins[place] !== bin || inPath >= PORTION_LINES) {
      if (bin >= 0) pen.stroke();
      if (inPath > 0) yield;
      inPath = 0;
      begin(work.lines.bins[place]);
    }
    addLine(pen, work, place);
    inPath++;
  }
  if (bin >= 0) pen.stroke();
  pen.globalAlpha = 1;
}

function drawAxisLines(
  pen: Pen,
  size: Size,
  axes: readonly Axis[],
  absent: ReadonlySet<Axis>,
  scales: Scale[],
  xs: number[],
  brushes: ReadonlyMap<string, Brush>,
  colours: Colours,
): void {
  pen.save();
  pen.globalAlpha = 1;
  const room = xs.length > 1 ? xs[1] - xs[0] : size.width;
  const staggered = axes.some((axis, index) => index > 0 && axis.name.length * LETTER > room);
  const letters = (staggered ? 2 : 1) * Math.floor((room - 8) / LETTER);
  axes.forEach((axis, index) => {
    const [x, scale] = [xs[index], scales[index]];
    pen.strokeStyle = colours.line;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(x, TOP);
    pen.lineTo(x, size.height - FOOT - (absent.size > 0 ? ABSENT : 0));
    pen.stroke();
    pen.font = `600 11px ${FONT}`;
    pen.fillStyle = colours.text;
    pen.textAlign = index === 0 ? "left" : index === axes.length - 1 ? "right" : "center";
    pen.textBaseline = "bottom";
    const shift = index === 0 ? -36 : index === axes.length - 1 ? 40 : 0;
    pen.fillText(
      clipMiddle(axis.name, Math.max(4, index === 0 ? Math.floor(letters / 2) + 4 : letters)),
      x + shift,
      index % 2 === 1 && staggered ? 13 : 27,
    );
    pen.font = `10px ${FONT}`;
    pen.textBaseline = "middle";
    pen.textAlign = index === axes.length - 1 ? "left" : "right";
    const side = index === axes.length - 1 ? 5 : -5;
    if (absent.has(axis)) {
      pen.fillStyle = colours.muted;
      pen.fillText("none", x + side, size.height - FOOT);
    }
    for (const tick of scale.ticks((size.height - TOP) / 44)) {
      const y = scale.at(tick);
      const words = clipText(scale.write(tick), index === 0 ? FIRST_WORDS : 12);
      pen.globalAlpha = 0.9;
      pen.fillStyle = colours.surface;
      const width = words.length * 6.3 + 2;
      pen.fillRect(side < 0 ? x + side - width : x + side, y - 6, width, 12);
      pen.globalAlpha = 1;
      pen.fillStyle = colours.muted;
      pen.fillText(words, x + side, y);
    }
    const brush = brushes.get(axis.filter);
    if (brush)
      drawBrush(pen, x, clampTo(scale.at(brush.high), size), clampTo(scale.at(brush.low), size), colours);
  });
  pen.restore();
}

function clampTo(y: number, size: Size): number {
  return Math.max(TOP - 4, Math.min(size.height - FOOT + 4, y));
}

function drawBrush(pen: Pen, x: number, from: number, to: number, colours: Colours): void {
  pen.save();
  pen.fillStyle = colours.accent;
  pen.globalAlpha = 0.3;
  pen.fillRect(x - 7, Math.min(from, to), 14, Math.max(2, Math.abs(to - from)));
  pen.globalAlpha = 1;
  pen.strokeStyle = colours.accent;
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.rect(x - 7, Math.min(from, to), 14, Math.max(2, Math.abs(to - from)));
  pen.stroke();
  pen.restore();
}
