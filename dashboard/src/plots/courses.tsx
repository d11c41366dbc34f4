// The best so far of several experiments, a colour and a dash for each.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { count, duration, number } from "../state/format";
import { boxOf, clipText, drawAxes } from "./axes";
import { csv, Figure, FONT, type Painting } from "./figure";
import { drawSteps } from "./points";
import { extent, makeScale, padded } from "./scales";

export interface Course {
  name: string;
  steps: { x: number; y: number }[];
  until: number;
}

// Told apart by those who see no red or no green, on light and on dark ground; the dashes help further.
const LINES = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b08900", "#56b4e9"];
const DASHES = [[], [7, 4], [2, 3]];

export function CoursesPlot({
  courses,
  overTime,
  log,
  metric,
  controls,
}: {
  courses: readonly Course[];
  overTime: boolean;
  log: boolean;
  metric: string;
  controls: ComponentChildren;
}) {
  const painting = useMemo(
    () => makePainting(log ? courses.map(positive) : courses, overTime, log, metric),
    [courses, overTime, log, metric],
  );
  return (
    <Figure
      name="compare"
      title={`Best ${metric} so far`}
      height={320 + courses.length * 18}
      painting={painting}
      controls={controls}
      summary={courses
        .map(
          (course) =>
            `${course.name}: ${number(course.steps[course.steps.length - 1]?.y)} after ${count(course.steps.length, "improvement")}`,
        )
        .join("; ")}
      csv={() =>
        csv([
          ["experiment", overTime ? "seconds" : "trials", metric],
          ...courses.flatMap((course) => course.steps.map((step) => [course.name, step.x, step.y])),
        ])
      }
    />
  );
}

/** What a logarithm can show of it. */
function positive(course: Course): Course {
  return { ...course, steps: course.steps.filter((step) => step.y > 0) };
}

function makePainting(courses: readonly Course[], overTime: boolean, log: boolean, metric: string): Painting {
  const xs = padded({ low: 0, high: Math.max(1, ...courses.map((course) => course.until)) }, false, 0.01);
  const ys = padded(
    extent(
      courses.flatMap((course) => course.steps.map((step) => step.y)),
      log,
    ) ?? { low: log ? 0.1 : 0, high: 1 },
    log,
  );
  return {
    paint(pen, size, colours) {
      const key = courses.length * 18;
      const box = boxOf(size.width, size.height - key);
      const scale = makeScale(xs, box.left, box.right);
      const x = overTime ? { ...scale, write: (value: number) => duration(value) } : scale;
      const y = makeScale(ys, box.bottom, box.top, log);
      drawAxes(pen, box, x, y, { x: overTime ? "time" : "trials that succeeded", y: metric }, colours);
      courses.forEach((course, place) => {
        const colour = LINES[place % LINES.length];
        const top = box.bottom + 44 + place * 18;
        pen.save();
        pen.setLineDash(DASHES[Math.floor(place / LINES.length) % DASHES.length]);
        drawSteps(pen, { ...box, right: x.at(course.until) }, course.steps, x, y, colour, 2.5);
        pen.strokeStyle = colour;
        pen.lineWidth = 3;
        pen.beginPath();
        pen.moveTo(box.left, top);
        pen.lineTo(box.left + 22, top);
        pen.stroke();
        pen.restore();
        pen.font = `12px ${FONT}`;
        pen.textAlign = "left";
        pen.textBaseline = "middle";
        pen.fillStyle = colours.text;
        pen.fillText(clipText(course.name, Math.floor((size.width - 120) / 7)), box.left + 30, top);
      });
    },
  };
}
