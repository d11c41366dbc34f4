// One metric of one trial over its steps, a line for each attempt.
import { useMemo } from "preact/hooks";
import type { Metric } from "../api/shapes";
import { Switch } from "../parts/controls";
import { amend, query } from "../state/address";
import { clock, count, moment, number, numeric } from "../state/format";
import { boxOf, clipTo, drawAxes } from "./axes";
import { csv, Figure, type Painting, type Size } from "./figure";
import { drawRing, unseenOf, unseenWords } from "./points";
import { extent, makeScale, padded, type Scale } from "./scales";

interface Reported {
  attempt: number;
  step: number;
  value: number;
  at: string;
}

export function MetricPlot({
  metrics,
  name,
  file,
}: {
  metrics: readonly Metric[];
  name: string;
  file: string;
}) {
  const log = query.value.get("mlog") === "1";
  const points = useMemo(
    () =>
      metrics.flatMap((one): Reported[] => {
        const value = numeric(one.values[name]);
        return one.step === null || value === null
          ? []
          : [{ attempt: one.attempt, step: one.step, value, at: one.at }];
      }),
    [metrics, name],
  );
  const painting = useMemo(() => makePainting(points, name, log), [points, name, log]);
  if (points.length === 0)
    return (
      <div class="figure">
        <h2>{name}</h2>
        <p class="muted">It was reported at the end only.</p>
      </div>
    );
  const last = points[points.length - 1];
  const { unseen } = painting;
  return (
    <Figure
      name={`${file}-${name}`}
      title={name}
      height={260}
      painting={painting}
      cursor="crosshair"
      summary={`${count(points.length, "report")}, the last one ${number(last?.value)} at step ${number(last?.step)}. ${unseen}`.trimEnd()}
      csv={() =>
        csv([
          ["attempt", "step", name, "at"],
          ...points.map((point) => [point.attempt, point.step, point.value, point.at]),
        ])
      }
      controls={<Switch label="log" on={log} onChange={(on) => amend({ mlog: on ? "1" : null })} />}
      tip={(pointer, size) => {
        const point = painting.hit(pointer.x, size);
        return (
          point && (
            <>
              <strong>step {number(point.step)}</strong>
              <div>
                {name} {number(point.value, 6)}
              </div>
              <div class="muted">
                {point.attempt > 1 && `attempt ${point.attempt}, `}
                {clock(moment(point.at))}
              </div>
            </>
          )
        );
      }}
    >
      {unseen && <p class="note">{unseen}</p>}
    </Figure>
  );
}

function makePainting(
  points: Reported[],
  name: string,
  log: boolean,
): Painting & { unseen: string; hit(x: number, size: Size): Reported | null } {
  const xs = padded(extent(points.map((point) => point.step)) ?? { low: 0, high: 1 }, false, 0.01);
  const ys = padded(
    extent(
      points.map((point) => point.value),
      log,
    ) ?? { low: 0, high: 1 },
    log,
  );
  const attempts = [...new Set(points.map((point) => point.attempt))];
  const scales = ({ width, height }: Size): { x: Scale; y: Scale } => {
    const box = boxOf(width, height);
    return { x: makeScale(xs, box.left, box.right), y: makeScale(ys, box.bottom, box.top, log) };
  };
  const hit = (px: number, size: Size): Reported | null => {
    const step = scales(size).x.invert(px);
    return points.reduce<Reported | null>(
      (best, point) =>
        best === null || Math.abs(point.step - step) < Math.abs(best.step - step) ? point : best,
      null,
    );
  };
  const values = points.map((point) => point.value);
  return {
    hit,
    unseen: unseenWords(unseenOf(values, log, ys), "report"),
    paint(pen, size, colours) {
      const box = boxOf(size.width, size.height);
      const { x, y } = scales(size);
      drawAxes(pen, box, x, y, { x: "step", y: name }, colours);
      pen.save();
      clipTo(pen, box, 2);
      attempts.forEach((attempt, place) => {
        const mine = points.filter((point) => point.attempt === attempt);
        pen.strokeStyle = place === attempts.length - 1 ? colours.accent : colours.idle;
        pen.lineWidth = 2;
        pen.lineJoin = "round";
        pen.beginPath();
        let inside = false;
        for (const point of mine) {
          if (!Number.isFinite(point.value)) {
            inside = false;
            continue;
          }
          if (inside) pen.lineTo(x.at(point.step), y.at(point.value));
          else pen.moveTo(x.at(point.step), y.at(point.value));
          inside = true;
        }
        pen.stroke();
        pen.fillStyle = pen.strokeStyle;
        if (mine.length <= 60) {
          pen.beginPath();
          for (const point of mine) {
            pen.moveTo(x.at(point.step) + 2.5, y.at(point.value));
            pen.arc(x.at(point.step), y.at(point.value), 2.5, 0, 2 * Math.PI);
          }
          pen.fill();
        }
      });
      pen.restore();
    },
    over(pen, size, colours, pointer) {
      const point = pointer && hit(pointer.x, size);
      if (!point || !Number.isFinite(point.value)) return;
      const { x, y } = scales(size);
      drawRing(pen, x.at(point.step), y.at(point.value), colours.text);
    },
  };
}
