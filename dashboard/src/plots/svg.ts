// What plots draw on: the part of a canvas that they use, and the same written as SVG.

export type Pen = Pick<
  CanvasRenderingContext2D,
  | "beginPath"
  | "moveTo"
  | "lineTo"
  | "closePath"
  | "rect"
  | "arc"
  | "stroke"
  | "fill"
  | "fillRect"
  | "fillText"
  | "save"
  | "restore"
  | "clip"
  | "setLineDash"
  | "translate"
  | "rotate"
  | "strokeStyle"
  | "fillStyle"
  | "lineWidth"
  | "globalAlpha"
  | "font"
  | "textAlign"
  | "textBaseline"
  | "lineJoin"
  | "lineCap"
>;

interface State {
  strokeStyle: string;
  fillStyle: string;
  lineWidth: number;
  globalAlpha: number;
  font: string;
  textAlign: CanvasTextAlign;
  textBaseline: CanvasTextBaseline;
  lineJoin: CanvasLineJoin;
  lineCap: CanvasLineCap;
  dash: number[];
  transform: string;
  groups: number;
}

const ANCHOR: Record<string, string> = {
  left: "start",
  start: "start",
  center: "middle",
  right: "end",
  end: "end",
};
const BASELINE: Record<string, string> = {
  top: "hanging",
  hanging: "hanging",
  middle: "central",
  alphabetic: "alphabetic",
  bottom: "text-after-edge",
};

/** As on a canvas, what is nowhere (NaN, the infinities) is left out. */
export class SvgPen {
  strokeStyle: string | CanvasGradient | CanvasPattern = "#000";
  fillStyle: string | CanvasGradient | CanvasPattern = "#000";
  lineWidth = 1;
  globalAlpha = 1;
  font = "12px sans-serif";
  textAlign: CanvasTextAlign = "start";
  textBaseline: CanvasTextBaseline = "alphabetic";
  lineJoin: CanvasLineJoin = "miter";
  lineCap: CanvasLineCap = "butt";
  private dash: number[] = [];
  private transform = "";
  private path = "";
  private groups = 0;
  private clips = 0;
  private readonly out: string[] = [];
  private readonly kept: State[] = [];

  constructor(
    private readonly width: number,
    private readonly height: number,
    private readonly title: string,
  ) {}

  beginPath(): void {
    this.path = "";
  }
  moveTo(x: number, y: number): void {
    if (areSomewhere(x, y)) this.path += `M${short(x)} ${short(y)}`;
  }
  lineTo(x: number, y: number): void {
    if (!areSomewhere(x, y)) return;
    this.path += `${this.path ? "L" : "M"}${short(x)} ${short(y)}`;
  }
  closePath(): void {
    this.path += "Z";
  }
  rect(x: number, y: number, width: number, height: number): void {
    if (!areSomewhere(x, y, width, height)) return;
    this.path += `M${short(x)} ${short(y)}h${short(width)}v${short(height)}h${short(-width)}Z`;
  }
  arc(x: number, y: number, radius: number, from: number, to: number): void {
    if (!areSomewhere(x, y, radius, from, to)) return;
    const r = short(radius);
    if (Math.abs(to - from) >= 2 * Math.PI - 1e-6) {
      this.path += `M${short(x - radius)} ${short(y)}a${r} ${r} 0 1 0 ${short(2 * radius)} 0a${r} ${r} 0 1 0 ${short(-2 * radius)} 0`;
      return;
    }
    const start = `${short(x + radius * Math.cos(from))} ${short(y + radius * Math.sin(from))}`;
    const end = `${short(x + radius * Math.cos(to))} ${short(y + radius * Math.sin(to))}`;
    this.path += `M${start}A${r} ${r} 0 ${Math.abs(to - from) > Math.PI ? 1 : 0} 1 ${end}`;
  }
  stroke(): void {
    const dash = this.dash.length > 0 ? ` stroke-dasharray="${this.dash.join(" ")}"` : "";
    const joints = ` stroke-linejoin="${this.lineJoin}" stroke-linecap="${this.lineCap}"`;
    this.put(
      `<path d="${this.path}" fill="none" stroke="${text(this.strokeStyle)}" stroke-width="${short(this.lineWidth)}"${dash}${joints}${this.shown()}/>`,
    );
  }
  fill(): void {
    this.put(`<path d="${this.path}" fill="${text(this.fillStyle)}"${this.shown()}/>`);
  }
  fillRect(x: number, y: number, width: number, height: number): void {
    if (!areSomewhere(x, y, width, height)) return;
    this.put(
      `<rect x="${short(x)}" y="${short(y)}" width="${short(width)}" height="${short(height)}" fill="${text(this.fillStyle)}"${this.shown()}/>`,
    );
  }
  fillText(words: string, x: number, y: number): void {
    if (!areSomewhere(x, y)) return;
    const [, weight = "", size = "12", family = "sans-serif"] =
      /^(\w+ )?([\d.]+)px (.*)$/.exec(this.font) ?? [];
    const bold = weight.trim() && weight.trim() !== "normal" ? ` font-weight="${weight.trim()}"` : "";
    this.put(
      `<text x="${short(x)}" y="${short(y)}" font-family="${text(family)}" font-size="${size}"${bold} text-anchor="${ANCHOR[this.textAlign]}"` +
        ` dominant-baseline="${BASELINE[this.textBaseline]}" fill="${text(this.fillStyle)}"${this.shown()}>${text(words)}</text>`,
    );
  }
  setLineDash(dash: number[]): void {
    this.dash = dash;
  }
  translate(x: number, y: number): void {
    this.transform += `translate(${short(x)} ${short(y)})`;
  }
  rotate(angle: number): void {
    this.transform += `rotate(${short((angle * 180) / Math.PI)})`;
  }
  clip(): void {
    const name = `clip${++this.clips}`;
    this.out.push(`<clipPath id="${name}"><path d="${this.path}"/></clipPath><g clip-path="url(#${name})">`);
    this.groups++;
  }
  save(): void {
    this.kept.push({
      strokeStyle: String(this.strokeStyle),
      fillStyle: String(this.fillStyle),
      lineWidth: this.lineWidth,
      globalAlpha: this.globalAlpha,
      font: this.font,
      textAlign: this.textAlign,
      textBaseline: this.textBaseline,
      lineJoin: this.lineJoin,
      lineCap: this.lineCap,
      dash: this.dash,
      transform: this.transform,
      groups: this.groups,
    });
  }
  restore(): void {
    const state = this.kept.pop();
    if (!state) return;
    for (; this.groups > state.groups; this.groups--) this.out.push("</g>");
    const { dash, transform, groups, ...rest } = state;
    Object.assign(this, rest);
    this.dash = dash;
    this.transform = transform;
    this.groups = groups;
  }

  toString(): string {
    const size = `width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${size} role="img"><title>${text(this.title)}</title>${this.out.join("\n")}</svg>\n`;
  }

  private put(element: string): void {
    this.out.push(this.transform ? `<g transform="${this.transform}">${element}</g>` : element);
  }

  private shown(): string {
    return this.globalAlpha < 1 ? ` opacity="${short(this.globalAlpha)}"` : "";
  }
}

function areSomewhere(...numbers: number[]): boolean {
  return numbers.every(Number.isFinite);
}

function short(value: number): string {
  return String(Math.round(value * 100) / 100);
}

/** Names of parameters are anybody's text; in a picture they are text, too. */
export function text(words: unknown): string {
  return String(words)
    .replace(/[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/gu, "\uFFFD")
    .replace(/&/g, "&amp;")
    .replace(/</g, "&lt;")
    .replace(/>/g, "&gt;")
    .replace(/"/g, "&quot;");
}
