// Two of several objectives against one another, with the front that no other trial beats.
import { useMemo } from "preact/hooks";
import type { Objective, Pareto } from "../api/shapes";
import { amend, go, query, trialPath } from "../state/address";
import { count, number, numeric } from "../state/format";
import { boxOf, drawAxes } from "./axes";
import { csv, Figure, type Painting, type Size } from "./figure";
import { drawPoints, drawRing, nearest, type Point, usefulExtent } from "./points";
import { makeScale, padded, type Scale } from "./scales";

const NO_OBJECTIVE: Objective = { metric: "", goal: "minimize", optional: false };

export function ParetoPlot({ id, pareto }: { id: string; pareto: Pareto }) {
  const metrics = pareto.objectives.map((one) => one.metric);
  const chosen = [query.value.get("px"), query.value.get("py")].map((name, place) => {
    const found = metrics.indexOf(name ?? "");
    return found >= 0 ? found : place;
  });
  const [across, up] = chosen;
  const painting = useMemo(() => makePainting(pareto, across, up), [pareto, across, up]);
  const hit = (pointer: { x: number; y: number }, size: Size) => {
    const { x, y } = painting.scales(size);
    return nearest(painting.points, x, y, pointer);
  };
  if (painting.points.length === 0) return null;
  const select = (name: "px" | "py", value: number, label: string) => (
    <label class="inline">
      {label}{" "}
      <select
        value={String(value)}
        onChange={(event) => amend({ [name]: metrics[Number(event.currentTarget.value)] })}
      >
        {metrics.map((metric, place) => (
          <option key={metric} value={String(place)}>
            {metric}
          </option>
        ))}
      </select>
    </label>
  );
  return (
    <Figure
      name="pareto"
      title="Pareto front"
      height={300}
      painting={painting}
      cursor="crosshair"
      summary={`${count(pareto.front.length, "trial")} that no other beats in every objective.`}
      csv={() =>
        csv([
          ["number", ...metrics, "front"],
          ...pareto.front.map((one) => [one.number, ...one.values, "yes"]),
          ...pareto.others.map((one) => [one.number, ...one.values, ""]),
        ])
      }
      controls={
        metrics.length > 2 && (
          <>
            {select("px", across, "across")}
            {select("py", up, "up")}
          </>
        )
      }
      tip={(pointer, size) => {
        const point = hit(pointer, size);
        return (
          point && (
            <>
              <strong>trial {point.row}</strong>{" "}
              {point.status === "succeeded" && <span class="muted">on the front</span>}
              <div>
                {metrics[across]} {number(point.x, 6)}
              </div>
              <div>
                {metrics[up]} {number(point.y, 6)}
              </div>
            </>
          )
        );
      }}
      onClick={(pointer, size) => {
        const point = hit(pointer, size);
        if (point) go(trialPath(id, point.row));
      }}
    >
      <p class="note">
        {count(pareto.front.length, "trial")} on the front
        {pareto.left_out > 0 && ` and ${number(pareto.left_out)} that are not shown`}
        {pareto.hypervolume !== null && (
          <>
            , hypervolume{" "}
            <strong title={String(pareto.hypervolume)}>{number(numeric(pareto.hypervolume))}</strong> up to{" "}
            {pareto.reference.map((value) => number(numeric(value))).join(", ")}
          </>
        )}
      </p>
    </Figure>
  );
}

function makePainting(
  pareto: Pareto,
  across: number,
  up: number,
): Painting & { points: Point[]; scales(size: Size): { x: Scale; y: Scale } } {
  const onFront = new Set(pareto.front.map((one) => one.number));
  const point = (one: { number: number; values: (number | string | null)[] }, front: boolean): Point => ({
    row: one.number,
    x: numeric(one.values[across]) ?? Number.NaN,
    y: numeric(one.values[up]) ?? Number.NaN,
    status: front ? "succeeded" : "other",
    faint: false,
  });
  const front = pareto.front
    .map((one) => point(one, true))
    .filter((one) => Number.isFinite(one.x) && Number.isFinite(one.y));
  const others = pareto.others
    .filter((one) => !onFront.has(one.number))
    .map((one) => point(one, false))
    .filter((one) => Number.isFinite(one.x) && Number.isFinite(one.y));
  const points = [...others, ...front];
  const xs = padded(usefulExtent(points.map((one) => one.x)) ?? { low: 0, high: 1 });
  const ys = padded(usefulExtent(points.map((one) => one.y)) ?? { low: 0, high: 1 });
  const name = (place: number) => {
    const { metric, goal } = pareto.objectives[place] ?? NO_OBJECTIVE;
    return `${metric} (${goal === "maximize" ? "more" : "less"} is better)`;
  };
  const scales = ({ width, height }: Size) => {
    const box = boxOf(width, height);
    return { x: makeScale(xs, box.left, box.right), y: makeScale(ys, box.bottom, box.top) };
  };
  return {
    points,
    scales,
    paint(pen, size, colours) {
      const box = boxOf(size.width, size.height);
      const { x, y } = scales(size);
      drawAxes(pen, box, x, y, { x: name(across), y: name(up) }, colours);
      const line = [...front].sort((one, other) => one.x - other.x);
      pen.strokeStyle = colours.best;
      pen.lineWidth = 2;
      pen.beginPath();
      for (const one of line) pen.lineTo(x.at(one.x), y.at(one.y));
      if (pareto.objectives.length === 2) pen.stroke();
      drawPoints(pen, box, others, x, y, colours);
      drawPoints(pen, box, front, x, y, { ...colours, good: colours.best });
    },
    over(pen, size, colours, pointer) {
      const { x, y } = scales(size);
      const found = pointer && nearest(points, x, y, pointer);
      if (found) drawRing(pen, x.at(found.x), y.at(found.y), colours.text);
    },
  };
}
