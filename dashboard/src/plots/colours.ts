// The colours of plots, from the style sheet; a scale of values that the colour-blind can read and that prints well.
import { signal } from "@preact/signals";

export interface Colours {
  text: string;
  muted: string;
  line: string;
  grid: string;
  surface: string;
  accent: string;
  best: string;
  good: string;
  warn: string;
  bad: string;
  idle: string;
  dark: boolean;
}

const NAMES = {
  text: "--text",
  muted: "--muted",
  line: "--line-strong",
  grid: "--line",
  surface: "--surface",
  accent: "--accent",
  best: "--best",
  good: "--good",
  warn: "--warn",
  bad: "--bad",
  idle: "--idle",
} as const;

/** Counts up when the theme changes, so that what was drawn is drawn again. */
export const themeRevision = signal(0);
let known: { revision: number; colours: Colours } | undefined;

export function colours(): Colours {
  const revision = themeRevision.value;
  if (known?.revision === revision) return known.colours;
  const probe = document.createElement("span");
  document.body.append(probe);
  const made = { dark: false } as Colours;
  for (const [name, variable] of Object.entries(NAMES) as [keyof typeof NAMES, string][]) {
    probe.style.color = `var(${variable})`;
    made[name] = getComputedStyle(probe).color;
  }
  made.dark = lightness(made.surface) < 0.5;
  probe.remove();
  known = { revision, colours: made };
  return made;
}

function lightness(colour: string): number {
  const [red = 255, green = 255, blue = 255] = (colour.match(/[\d.]+/g) ?? []).map(Number);
  return (0.299 * red + 0.587 * green + 0.114 * blue) / 255;
}

export function statusColour(status: string, found: Colours): string {
  switch (status) {
    case "succeeded":
    case "completed":
      return found.good;
    case "failed":
    case "lost":
      return found.bad;
    case "early_stopped":
    case "stopping":
      return found.warn;
    case "running":
    case "starting":
      return found.accent;
    default:
      return found.idle;
  }
}

type Stop = readonly [number, number, number];
// Evenly in lightness, from what recedes into the ground to what stands out: readable without red and green.
const ON_LIGHT: readonly Stop[] = [
  [203, 211, 222],
  [128, 190, 196],
  [44, 122, 160],
  [60, 20, 110],
];
const ON_DARK: readonly Stop[] = [
  [58, 70, 92],
  [38, 112, 134],
  [84, 190, 116],
  [253, 231, 37],
];
export const BINS = 64;

/** The colour of bin 0 (worst) to BINS-1 (best): what is good stands out from the background. */
export function binColour(bin: number, dark: boolean): string {
  const stops = dark ? ON_DARK : ON_LIGHT;
  const place = (bin / (BINS - 1)) * (stops.length - 1);
  const left = Math.min(stops.length - 2, Math.floor(place));
  const part = place - left;
  const mixed = stops[left].map((value, index) =>
    Math.round(value + (stops[left + 1][index] - value) * part),
  );
  return `rgb(${mixed.join(",")})`;
}
