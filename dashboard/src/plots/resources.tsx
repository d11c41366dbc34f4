// What an attempt used over time: its memory, or the cores that it kept busy.
import { useMemo } from "preact/hooks";
import type { ResourceSample } from "../api/shapes";
import { bytes, count, duration, number } from "../state/format";
import { boxOf, clipTo, drawAxes } from "./axes";
import { csv, Figure, type Painting, type Size } from "./figure";
import { drawRing } from "./points";
import { makeScale, type Scale } from "./scales";

export type Used = "memory" | "cores";

const MOST_DOTS = 60;
const TIMES: readonly [number, string][] = [
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
];
const FEW_UNITS = 3; // of a unit that is too large for its axis

/** The largest unit of which there are some, with its size. */
function unitOf(seconds: number): [number, string] {
  return TIMES.find(([size]) => seconds >= FEW_UNITS * size) ?? [1, "s"];
}

function sizeUnit(most: number): [number, string] {
  const place = most < 1 ? 0 : Math.min(4, Math.floor(Math.log2(most) / 10));
  return [1024 ** place, ["B", "KiB", "MiB", "GiB", "TiB"][place] ?? "B"];
}

/** Its points in the units of the axes, which both begin at zero. */
export function usedOverTime(samples: readonly ResourceSample[], of: Used) {
  const last = samples[samples.length - 1]?.at_s ?? 0;
  const values = samples.map((one) => (of === "memory" ? one.memory_bytes : one.cores));
  const most = Math.max(0, ...values);
  const [second, time] = unitOf(last);
  const [size, unit] = of === "memory" ? sizeUnit(most) : [1, ""];
  return {
    points: samples.map((one, place) => ({
      x: one.at_s / second,
      y: (values[place] ?? 0) / size,
      sample: one,
    })),
    x: { low: 0, high: last / second || 1, name: `since its start, ${time}` },
    y: { low: 0, high: (most / size) * 1.06 || 1, name: of === "memory" ? `memory, ${unit}` : "cores" },
    most,
  };
}

type Data = ReturnType<typeof usedOverTime>;

export function ResourcePlot({
  samples,
  of,
  file,
}: {
  samples: readonly ResourceSample[];
  of: Used;
  file: string;
}) {
  const data = useMemo(() => usedOverTime(samples, of), [samples, of]);
  const painting = useMemo(() => makePainting(data), [data]);
  const most = of === "memory" ? bytes(data.most) : count(Number(data.most.toPrecision(3)), "core");
  return (
    <Figure
      name={`${file}-${of}`}
      title={of === "memory" ? "Memory" : "Cores in use"}
      height={180}
      painting={painting}
      cursor="crosshair"
      summary={`${count(samples.length, "sample")} over ${duration(samples[samples.length - 1]?.at_s)}, ${most} at most.`}
      csv={() =>
        csv([
          ["at_s", "memory_bytes", "cores", "processor_s", "processes"],
          ...samples.map((one) => [one.at_s, one.memory_bytes, one.cores, one.processor_s, one.processes]),
        ])
      }
      tip={(pointer, size) => {
        const point = painting.hit(pointer.x, size);
        return (
          point && (
            <>
              <strong>after {duration(point.sample.at_s)}</strong>
              <div>
                {bytes(point.sample.memory_bytes)}, {count(Number(point.sample.cores.toPrecision(3)), "core")}
              </div>
              <div class="muted">{count(point.sample.processes, "process", "processes")}</div>
            </>
          )
        );
      }}
    />
  );
}

function makePainting(data: Data): Painting & { hit(x: number, size: Size): Data["points"][number] | null } {
  const { points } = data;
  const scales = ({ width, height }: Size): { x: Scale; y: Scale } => {
    const box = boxOf(width, height);
    return {
      x: makeScale(data.x, box.left, box.right),
      y: { ...makeScale(data.y, box.bottom, box.top), write: (value) => number(value, 3) },
    };
  };
  const hit = (px: number, size: Size) => {
    const at = scales(size).x.invert(px);
    return points.reduce<Data["points"][number] | null>(
      (best, point) => (best === null || Math.abs(point.x - at) < Math.abs(best.x - at) ? point : best),
      null,
    );
  };
  return {
    hit,
    paint(pen, size, colours) {
      const box = boxOf(size.width, size.height);
      const { x, y } = scales(size);
      drawAxes(pen, box, x, y, { x: data.x.name, y: data.y.name }, colours);
      pen.save();
      clipTo(pen, box, 2);
      pen.strokeStyle = colours.accent;
      pen.fillStyle = colours.accent;
      pen.lineWidth = 2;
      pen.lineJoin = "round";
      pen.beginPath();
      points.forEach((point, place) => {
        if (place === 0) pen.moveTo(x.at(point.x), y.at(point.y));
        else pen.lineTo(x.at(point.x), y.at(point.y));
      });
      pen.stroke();
      if (points.length <= MOST_DOTS) {
        pen.beginPath();
        for (const point of points) {
          pen.moveTo(x.at(point.x) + 2.5, y.at(point.y));
          pen.arc(x.at(point.x), y.at(point.y), 2.5, 0, 2 * Math.PI);
        }
        pen.fill();
      }
      pen.restore();
    },
    over(pen, size, colours, pointer) {
      const point = pointer && hit(pointer.x, size);
      if (!point) return;
      const { x, y } = scales(size);
      drawRing(pen, x.at(point.x), y.at(point.y), colours.text);
    },
  };
}
