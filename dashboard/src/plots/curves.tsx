// Learning curves: stopped ones grey, the best bold; thousands of lines in three strokes.
import { useMemo } from "preact/hooks";
import type { Curves } from "../api/shapes";
import { Switch } from "../parts/controls";
import { amend, go, query, trialPath } from "../state/address";
import { count, number, numeric } from "../state/format";
import { statusWords } from "../state/words";
import { type Box, boxOf, clipTo, drawAxes } from "./axes";
import type { Colours } from "./colours";
import { csv, Figure, type Painting, type Size } from "./figure";
import { unseenOf, unseenWords, usefulExtent } from "./points";
import { extent, makeScale, padded, type Scale } from "./scales";
import type { Pen } from "./svg";

interface Line {
  number: number;
  status: string;
  steps: number[];
  values: number[];
}

interface Props {
  id: string;
  curves: Curves;
  best: number | null;
  shows: ((number: number) => boolean) | null;
}

export function CurvesPlot({ id, curves, best, shows }: Props) {
  const log = query.value.get("clog") === "1";
  const lines = useMemo<Line[]>(
    () =>
      curves.curves.map((curve) => ({
        ...curve,
        values: curve.values.map((value) => numeric(value) ?? Number.NaN),
      })),
    [curves],
  );
  const painting = useMemo(
    () => makePainting(lines, curves.metric, best, shows, log),
    [lines, best, shows, log],
  );
  if (lines.every((line) => line.steps.length === 0)) return null;
  const shown =
    curves.left_out > 0
      ? `The best and the newest ${count(lines.length, "trial")}; ${number(curves.left_out)} others are left out.`
      : `${count(lines.length, "trial")}.`;
  const { unseen } = painting;
  return (
    <Figure
      name="curves"
      title={`Learning curves of ${curves.metric}`}
      height={280}
      painting={painting}
      summary={`${shown} ${unseen}`.trimEnd()}
      cursor="crosshair"
      csv={() =>
        csv([
          ["number", "step", curves.metric],
          ...lines.flatMap((line) =>
            line.steps.map((step, place) => [line.number, step, line.values[place]]),
          ),
        ])
      }
      controls={<Switch label="log" on={log} onChange={(on) => amend({ clog: on ? "1" : null })} />}
      tip={(pointer, size) => {
        const hit = painting.hit(pointer, size);
        return (
          hit && (
            <>
              <strong>trial {hit.line.number}</strong>{" "}
              <span class={`status-text ${hit.line.status}`}>{statusWords(hit.line.status)}</span>
              <div>
                step {number(hit.line.steps[hit.place])}: {number(hit.line.values[hit.place], 6)}
              </div>
            </>
          )
        );
      }}
      onClick={(pointer, size) => {
        const hit = painting.hit(pointer, size);
        if (hit) go(trialPath(id, hit.line.number));
      }}
    >
      {curves.left_out > 0 && <p class="note">{shown}</p>}
      {unseen && <p class="note">{unseen}</p>}
    </Figure>
  );
}

interface Hit {
  line: Line;
  place: number;
}

function makePainting(
  lines: Line[],
  metric: string,
  best: number | null,
  shows: Props["shows"],
  log: boolean,
): Painting & { unseen: string; hit(at: { x: number; y: number }, size: Size): Hit | null } {
  const xs = padded(extent(lines.flatMap((line) => line.steps)) ?? { low: 0, high: 1 }, false, 0.01);
  const values = lines.flatMap((line) => line.values);
  const ys = padded((log ? extent(values, true) : usefulExtent(values)) ?? { low: 0, high: 1 }, log);
  const drawn = shows ? lines.filter((line) => shows(line.number)) : lines;
  const scales = ({ width, height }: Size) => {
    const box = boxOf(width, height);
    return { box, x: makeScale(xs, box.left, box.right), y: makeScale(ys, box.bottom, box.top, log) };
  };
  const hit = (at: { x: number; y: number }, size: Size): Hit | null => {
    const { x, y } = scales(size);
    let found: Hit | null = null;
    let distance = 16 * 16;
    for (const line of lines) {
      if (shows && !shows(line.number)) continue;
      for (let place = 0; place < line.steps.length; place++) {
        const [dx, dy] = [x.at(line.steps[place]) - at.x, y.at(line.values[place]) - at.y];
        if (dx * dx + dy * dy < distance) {
          distance = dx * dx + dy * dy;
          found = { line, place };
        }
      }
    }
    return found;
  };
  return {
    hit,
    unseen: unseenWords(
      unseenOf(
        drawn.flatMap((line) => line.values),
        log,
        ys,
      ),
      "report",
    ),
    paint(pen, size, colours) {
      const { box, x, y } = scales(size);
      drawAxes(pen, box, x, y, { x: "step", y: metric }, colours);
      pen.save();
      clipTo(pen, box, 1);
      const stopped = drawn.filter(
        (line) => line.status === "early_stopped" || line.status === "failed" || line.status === "canceled",
      );
      const others = drawn.filter((line) => !stopped.includes(line) && line.number !== best);
      const many = drawn.length > 60 ? 0.55 : 0.8;
      strokeLines(pen, stopped, x, y, colours.idle, 1, many * 0.7);
      strokeLines(
        pen,
        others.filter((line) => line.status === "succeeded"),
        x,
        y,
        colours.good,
        1.2,
        many,
      );
      strokeLines(
        pen,
        others.filter((line) => line.status !== "succeeded"),
        x,
        y,
        colours.accent,
        1.6,
        0.95,
      );
      strokeLines(
        pen,
        drawn.filter((line) => line.number === best),
        x,
        y,
        colours.best,
        3,
        1,
      );
      pen.restore();
      drawKey(pen, box, colours, best !== null && drawn.some((line) => line.number === best));
    },
    over(pen, size, colours, pointer) {
      const found = pointer && hit(pointer, size);
      if (!found) return;
      const { box, x, y } = scales(size);
      pen.save();
      clipTo(pen, box, 1);
      strokeLines(pen, [found.line], x, y, colours.text, 2.5, 1);
      pen.restore();
    },
  };
}

function strokeLines(
  pen: Pen,
  lines: readonly Line[],
  x: Scale,
  y: Scale,
  colour: string,
  width: number,
  alpha: number,
): void {
  if (lines.length === 0) return;
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.globalAlpha = alpha;
  pen.lineJoin = "round";
  pen.beginPath();
  for (const line of lines) {
    let inside = false;
    for (let place = 0; place < line.steps.length; place++) {
      const value = line.values[place];
      if (!Number.isFinite(value)) {
        inside = false; // a gap where the metric was NaN or infinite
        continue;
      }
      const [px, py] = [x.at(line.steps[place]), y.at(value)];
      if (inside) pen.lineTo(px, py);
      else {
        const half = line.steps.length === 1 ? 3 : 0; // one report alone is a short stroke, or nobody would see it
        pen.moveTo(px - half, py);
        pen.lineTo(px + Math.max(half, 0.5), py);
        inside = true;
      }
    }
  }
  pen.stroke();
  pen.globalAlpha = 1;
}

function drawKey(pen: Pen, box: Box, colours: Colours, hasBest: boolean): void {
  const entries: [string, string][] = [
    ["best", colours.best],
    ["running", colours.accent],
    ["ended", colours.good],
    ["stopped", colours.idle],
  ];
  pen.save();
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = "left";
  pen.textBaseline = "middle";
  let at = box.left + 6;
  const shown = hasBest ? entries : entries.slice(1);
  for (const [words, colour] of box.right - box.left < 330 ? shown.slice(0, 2) : shown) {
    pen.strokeStyle = colour;
    pen.lineWidth = words === "best" ? 3 : 2;
    pen.beginPath();
    pen.moveTo(at, box.bottom + 27);
    pen.lineTo(at + 16, box.bottom + 27);
    pen.stroke();
    pen.fillStyle = colours.muted;
    pen.fillText(words, at + 21, box.bottom + 27);
    at += 34 + words.length * 6.4;
  }
  pen.restore();
}
