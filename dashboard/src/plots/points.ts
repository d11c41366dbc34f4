// Scatter plots: where points lie, which one is under the pointer, and how thousands of them are drawn at once.

import { count } from "../state/format";
import { type Box, clipTo, isOutlined, mark } from "./axes";
import { type Colours, statusColour } from "./colours";
import type { Scale } from "./scales";
import type { Pen } from "./svg";

/** How many values are not seen: no finite numbers, none that have a logarithm where that is drawn, or far outside. */
export interface Unseen {
  endless: number;
  negative: number;
  outside: number;
}

export function unseenOf(
  values: Iterable<number>,
  log: boolean,
  shown: { low: number; high: number },
): Unseen {
  const unseen = { endless: 0, negative: 0, outside: 0 };
  for (const value of values) {
    if (!Number.isFinite(value)) unseen.endless++;
    else if (log && value <= 0) unseen.negative++;
    else if (value < shown.low || value > shown.high) unseen.outside++;
  }
  return unseen;
}

/** What is not drawn; nothing where all is. `what` has the values. */
export function unseenWords(unseen: Unseen, what = "trial"): string {
  const words = [
    unseen.endless > 0 && `${count(unseen.endless, what)} with NaN or an infinite value`,
    unseen.negative > 0 && `${count(unseen.negative, what)} whose value has no logarithm`,
    unseen.outside > 0 && `${count(unseen.outside, what)} far outside of the others`,
  ].filter(Boolean);
  return words.length > 0 ? `Not drawn: ${words.join(", ")}.` : "";
}

export interface Point {
  row: number;
  x: number;
  y: number;
  status: string;
  /** Left out by the filter: drawn faintly. */
  faint: boolean;
}

const NEAR = 14; // pixels

export function drawPoints(
  pen: Pen,
  box: Box,
  points: readonly Point[],
  x: Scale,
  y: Scale,
  colours: Colours,
): void {
  const size = points.length > 4_000 ? 2 : points.length > 800 ? 2.6 : 3.6;
  const groups = new Map<string, Point[]>();
  for (const point of points) {
    const key = `${point.faint ? "faint" : "shown"} ${point.status}`;
    const group = groups.get(key);
    if (group) group.push(point);
    else groups.set(key, [point]);
  }
  pen.save();
  clipTo(pen, box);
  const order = [...groups.keys()].sort((one, other) => Number(one > other) - Number(one < other));
  for (const key of order) {
    const [shown, status] = key.split(" ");
    const colour = shown === "faint" ? colours.grid : statusColour(status, colours);
    pen.globalAlpha = shown === "faint" ? 0.8 : points.length > 2_000 ? 0.6 : 0.85;
    pen.beginPath();
    for (const point of groups.get(key) ?? []) mark(pen, status, x.at(point.x), y.at(point.y), size);
    pen.lineWidth = 1.5;
    pen.strokeStyle = colour;
    pen.fillStyle = colour;
    if (isOutlined(status)) pen.stroke();
    else pen.fill();
  }
  pen.restore();
}

export function nearest(
  points: readonly Point[],
  x: Scale,
  y: Scale,
  at: { x: number; y: number },
  near = NEAR,
): Point | null {
  let best: Point | null = null;
  let distance = near * near;
  for (const point of points) {
    const [dx, dy] = [x.at(point.x) - at.x, y.at(point.y) - at.y];
    const found = dx * dx + dy * dy - (point.faint ? 0 : 1);
    if (found < distance) {
      distance = found;
      best = point;
    }
  }
  return best;
}

export function drawRing(pen: Pen, x: number, y: number, colour: string): void {
  pen.save();
  pen.strokeStyle = colour;
  pen.lineWidth = 2;
  pen.beginPath();
  pen.arc(x, y, 7, 0, 2 * Math.PI);
  pen.stroke();
  pen.restore();
}

/** The best value so far at each of them, in the order of `x`; those without a value are left out. */
export function bestSoFar(
  points: readonly { x: number; y: number }[],
  maximize: boolean,
): { x: number; y: number }[] {
  const ordered = points.filter((point) => !Number.isNaN(point.y)).sort((one, other) => one.x - other.x);
  const found: { x: number; y: number }[] = [];
  let best = Number.NaN;
  for (const point of ordered) {
    if (Number.isNaN(best) || (maximize ? point.y > best : point.y < best)) {
      best = point.y;
      found.push({ x: point.x, y: best });
    }
  }
  return found;
}

export function drawSteps(
  pen: Pen,
  box: Box,
  steps: readonly { x: number; y: number }[],
  x: Scale,
  y: Scale,
  colour: string,
  width = 2,
): void {
  if (steps.length === 0) return;
  pen.save();
  clipTo(pen, box);
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.lineJoin = "round";
  pen.beginPath();
  pen.moveTo(x.at(steps[0].x), y.at(steps[0].y));
  for (let place = 1; place < steps.length; place++) {
    pen.lineTo(x.at(steps[place].x), y.at(steps[place - 1].y));
    pen.lineTo(x.at(steps[place].x), y.at(steps[place].y));
  }
  pen.lineTo(Math.max(box.right, x.at(steps[steps.length - 1].x)), y.at(steps[steps.length - 1].y));
  pen.stroke();
  pen.restore();
}

/** From the 2nd to the 98th hundredth where a few values lie far outside, so that the others can be told apart. */
export function usefulExtent(values: readonly number[]): { low: number; high: number } | null {
  const finite = values.filter(Number.isFinite).sort((one, other) => one - other);
  if (finite.length === 0) return null;
  const [low, high] = [finite[0], finite[finite.length - 1]];
  if (finite.length < 20) return { low, high };
  const [inner, outer] = [
    finite[Math.floor(finite.length * 0.05)],
    finite[Math.ceil(finite.length * 0.95) - 1],
  ];
  const room = (outer - inner) * 1.5 || Math.abs(outer) * 0.1 || 1;
  return { low: Math.max(low, inner - room), high: Math.min(high, outer + room) };
}
