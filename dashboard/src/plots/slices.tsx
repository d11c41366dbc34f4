// The value against one parameter: a small plot for each.
import { useMemo } from "preact/hooks";
import { go, trialPath } from "../state/address";
import type { Trials } from "../state/columns";
import { count, number } from "../state/format";
import { boxOf, clipText, drawAxes } from "./axes";
import { csv, Figure, type Painting, type Size } from "./figure";
import { TrialTip } from "./history";
import type { Axis } from "./parallel";
import { drawPoints, drawRing, nearest, type Point, usefulExtent } from "./points";
import { categoryScale, extent, makeScale, padded, type Scale } from "./scales";

interface Props {
  id: string;
  trials: Trials;
  revision: number;
  axis: Axis;
  passes: Uint8Array | null;
  metric: string;
  now: number;
  height?: number;
}

const SPREAD = 0.5; // of a category, so that equal points do not hide one another

export function slicePoints(trials: Trials, axis: Axis, passes: Uint8Array | null): Point[] {
  const points: Point[] = [];
  for (let row = 0; row < trials.length; row++) {
    const x = axis.data[row];
    const y = trials.value[row];
    if (!Number.isFinite(y) || Number.isNaN(x) || (axis.labels && x < 0) || (axis.log && x <= 0)) continue;
    const moved = axis.labels ? x + (((trials.number[row] * 0.618) % 1) - 0.5) * SPREAD : x;
    points.push({
      row,
      x: moved,
      y,
      status: trials.statusOf(row),
      faint: passes !== null && passes[row] === 0,
    });
  }
  return points;
}

export function SlicePlot(props: Props) {
  const { id, trials, revision, axis, passes, metric } = props;
  const points = useMemo(() => slicePoints(trials, axis, passes), [trials, revision, axis, passes]);
  const painting = useMemo(() => makePainting(points, axis, metric), [points, axis, metric]);
  if (points.length === 0) return null;
  const hit = (pointer: { x: number; y: number }, size: Size) => {
    const { x, y } = painting.scales(size);
    return nearest(points, x, y, pointer);
  };
  return (
    <Figure
      name={`slice-${axis.name}`}
      title={clipText(axis.name, 60)}
      height={props.height ?? 220}
      painting={painting}
      cursor="crosshair"
      summary={`${metric} against ${axis.name}: ${count(points.length, "trial")}.`}
      csv={() =>
        csv([
          ["number", axis.name, metric],
          ...points.map((p) => [
            trials.number[p.row],
            axis.labels ? axis.labels[axis.data[p.row]] : axis.data[p.row],
            p.y,
          ]),
        ])
      }
      tip={(pointer, size) => {
        const point = hit(pointer, size);
        return (
          point && (
            <>
              <TrialTip trials={trials} row={point.row} metric={metric} now={props.now} />
              <div>
                {clipText(axis.name, 30)}{" "}
                {axis.labels
                  ? clipText(axis.labels[axis.data[point.row]], 40)
                  : number(axis.data[point.row], 6)}
              </div>
            </>
          )
        );
      }}
      onClick={(pointer, size) => {
        const point = hit(pointer, size);
        if (point) go(trialPath(id, trials.number[point.row]));
      }}
    />
  );
}

function makePainting(
  points: Point[],
  axis: Axis,
  metric: string,
): Painting & { scales(size: Size): { x: Scale; y: Scale } } {
  const ys = padded(usefulExtent(points.map((point) => point.y)) ?? { low: 0, high: 1 });
  const xs = padded(
    extent(
      points.map((point) => point.x),
      axis.log,
    ) ?? { low: 0, high: 1 },
    axis.log,
  );
  const scales = ({ width, height }: Size) => {
    const box = boxOf(width, height);
    const x = axis.labels
      ? categoryScale(axis.labels, box.left, box.right)
      : makeScale(xs, box.left, box.right, axis.log);
    return { x, y: makeScale(ys, box.bottom, box.top) };
  };
  return {
    scales,
    paint(pen, size, colours) {
      const box = boxOf(size.width, size.height);
      const { x, y } = scales(size);
      drawAxes(pen, box, x, y, { x: axis.name, y: metric }, colours);
      drawPoints(pen, box, points, x, y, colours);
    },
    over(pen, size, colours, pointer) {
      const { x, y } = scales(size);
      const point = pointer && nearest(points, x, y, pointer);
      if (point) drawRing(pen, x.at(point.x), y.at(point.y), colours.text);
    },
  };
}
