// The two axes of a plot, with their ticks, and the marks of trials: a shape beside each colour.
import type { Colours } from "./colours";
import { FONT } from "./figure";
import type { Scale } from "./scales";
import type { Pen } from "./svg";

export interface Box {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

export function boxOf(width: number, height: number, left = 62): Box {
  return { left, top: 10, right: width - 12, bottom: height - 36 };
}

export function clipText(words: string, most: number): string {
  return words.length > most ? `${whole(words.slice(0, most - 1))}…` : words;
}

/** Without the half of a sign at its ends that a cut has left: of an emoji nothing could be drawn. */
function whole(words: string): string {
  return words.replace(/^[\uDC00-\uDFFF]|[\uD800-\uDBFF]$/g, "");
}

/** Both ends of a name, most of it from its beginning. */
export function clipMiddle(words: string, most: number): string {
  if (words.length <= most) return words;
  const end = Math.floor((most - 1) * 0.25);
  return `${whole(words.slice(0, most - 1 - end))}…${whole(words.slice(words.length - end))}`;
}

export function drawAxes(
  pen: Pen,
  box: Box,
  x: Scale,
  y: Scale,
  names: { x: string; y: string },
  colours: Colours,
): void {
  pen.save();
  pen.font = `11px ${FONT}`;
  pen.lineWidth = 1;
  pen.strokeStyle = colours.grid;
  pen.fillStyle = colours.muted;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const tick of y.ticks(Math.max(2, (box.bottom - box.top) / 38))) {
    const at = Math.round(y.at(tick)) + 0.5;
    if (at < box.top - 1 || at > box.bottom + 1) continue;
    pen.beginPath();
    pen.moveTo(box.left, at);
    pen.lineTo(box.right, at);
    pen.stroke();
    pen.fillText(clipText(y.write(tick), 12), box.left - 7, at);
  }
  pen.textAlign = "center";
  pen.textBaseline = "top";
  const room = Math.max(2, (box.right - box.left) / (x.kind === "category" ? 60 : 84));
  for (const tick of x.ticks(room)) {
    const at = Math.round(x.at(tick)) + 0.5;
    if (at < box.left - 1 || at > box.right + 1) continue;
    pen.fillText(clipText(x.write(tick), x.kind === "category" ? 10 : 14), at, box.bottom + 6);
  }
  pen.strokeStyle = colours.line;
  pen.beginPath();
  pen.moveTo(box.left, box.bottom + 0.5);
  pen.lineTo(box.right, box.bottom + 0.5);
  pen.stroke();
  drawNames(pen, box, names, colours);
  pen.restore();
}

function drawNames(pen: Pen, box: Box, names: { x: string; y: string }, colours: Colours): void {
  pen.fillStyle = colours.muted;
  pen.textAlign = "right";
  pen.textBaseline = "bottom";
  pen.fillText(clipText(names.x, 40), box.right, box.bottom + 35);
  pen.save();
  pen.translate(11, (box.top + box.bottom) / 2);
  pen.rotate(-Math.PI / 2);
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillText(clipText(names.y, 34), 0, 0);
  pen.restore();
}

/** The path of a mark: a disc succeeded, a triangle was stopped early, a cross failed, a ring runs, a square is another. */
export function mark(pen: Pen, status: string, x: number, y: number, size: number): void {
  switch (status) {
    case "succeeded":
    case "running":
    case "starting":
      pen.moveTo(x + size, y);
      pen.arc(x, y, size, 0, 2 * Math.PI);
      break;
    case "early_stopped":
    case "stopping":
      pen.moveTo(x - size, y - size * 0.8);
      pen.lineTo(x + size, y - size * 0.8);
      pen.lineTo(x, y + size);
      pen.closePath();
      break;
    case "failed":
      pen.moveTo(x - size, y - size);
      pen.lineTo(x + size, y + size);
      pen.moveTo(x - size, y + size);
      pen.lineTo(x + size, y - size);
      break;
    default:
      pen.rect(x - size * 0.8, y - size * 0.8, size * 1.6, size * 1.6);
  }
}

/** Failed and running ones are drawn by their outline. */
export function isOutlined(status: string): boolean {
  return status === "failed" || status === "running" || status === "starting";
}

export function clipTo(pen: Pen, box: Box, room = 5): void {
  pen.beginPath();
  pen.rect(box.left - room, box.top - room, box.right - box.left + 2 * room, box.bottom - box.top + 2 * room);
  pen.clip();
}
