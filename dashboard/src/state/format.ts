// Numbers, durations and moments as people write them; the exact value goes into a title.
import { WholeFloat } from "../api/exact";

const SMALLEST_PLAIN = 1e-4;
const LARGEST_PLAIN = 1e6;

export function number(value: number | null | undefined, digits = 4): string {
  if (value === null || value === undefined) return "–";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < SMALLEST_PLAIN || size >= LARGEST_PLAIN) {
    if (Number.isInteger(value) && size < 1e9) return minus(grouped(String(value)));
    const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
    return minus(`${trimmed(mantissa)}e${Number(exponent)}`);
  }
  if (Number.isInteger(value)) return minus(grouped(String(value)));
  return minus(
    grouped(
      trimmed(
        value.toPrecision(digits).includes("e") ? String(Math.round(value)) : value.toPrecision(digits),
      ),
    ),
  );
}

export function count(value: number, one: string, many = `${one}s`): string {
  return `${number(value)} ${value === 1 ? one : many}`;
}

function trimmed(text: string): string {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function grouped(text: string): string {
  const [whole, part] = text.split(".");
  const digits = whole.replace(/\B(?=(\d{3})+(?!\d))/g, whole.replace("-", "").length > 4 ? "\u202f" : "");
  return part === undefined ? digits : `${digits}.${part}`;
}

function minus(text: string): string {
  return text.replace(/^-/, "−").replace("e-", "e−");
}

export function percent(share: number): string {
  if (share > 0 && share < 0.001) return "< 0.1 %";
  return `${number(share * 100, share < 0.1 ? 2 : 3)} %`;
}

const UNITS: readonly [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
];

/** The two largest units: "2 h 5 min". */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return "–";
  if (seconds > 0 && seconds < 0.0995) return `${Math.max(1, Math.round(seconds * 1_000))} ms`;
  if (seconds < 10) return `${trimmed(Math.max(0, seconds).toFixed(1))} s`;
  let rest = Math.round(seconds);
  const parts: string[] = [];
  for (const [size, unit] of UNITS) {
    const units = Math.floor(rest / size);
    rest -= units * size;
    if (units > 0) parts.push(`${units} ${unit}`);
    else if (parts.length > 0) break;
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

export function ago(at: number | null | undefined, now: number): string {
  if (at === null || at === undefined || Number.isNaN(at)) return "–";
  const seconds = Math.max(0, (now - at) / 1_000);
  if (seconds < 5) return "just now";
  const [size, unit] = UNITS.find(([length]) => seconds >= length) ?? [1, "s"];
  return `${Math.floor(seconds / size)} ${unit} ago`;
}

export function clock(at: number | null | undefined): string {
  if (at === null || at === undefined || Number.isNaN(at)) return "–";
  const moment = new Date(at);
  const two = (part: number) => String(part).padStart(2, "0");
  const day = `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())}`;
  return `${day} ${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}`;
}

/** The time of a moment of this day; of another one with its day. */
export function timeOrDay(at: number | null | undefined, now: number): string {
  const text = clock(at);
  return text.slice(0, 10) === clock(now).slice(0, 10) ? text.slice(11) : text.slice(5, 16);
}

export function bytes(size: number | null | undefined): string {
  if (size === null || size === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const place = size < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(size) / 10));
  return `${number(size / 1024 ** place, 3)} ${units[place]}`;
}

export function moment(text: string | null | undefined): number | null {
  if (!text) return null;
  const at = Date.parse(text);
  return Number.isNaN(at) ? null : at;
}

/** A number as the API has it: NaN and the infinities are strings there. */
export function numeric(value: unknown): number | null {
  if (typeof value === "number") return value;
  if (typeof value === "bigint") return Number(value); // where it is drawn, not what it is
  if (value instanceof WholeFloat) return value.float;
  if (value === "NaN") return Number.NaN;
  if (value === "Infinity") return Number.POSITIVE_INFINITY;
  if (value === "-Infinity") return Number.NEGATIVE_INFINITY;
  return null;
}

/** One value of a parameter as text; a text stands as it is. */
export function cell(value: unknown): string {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return number(value);
  if (typeof value === "string") return value;
  return JSON.stringify(value);
}

export function exact(value: unknown): string {
  if (typeof value === "number" && !Number.isFinite(value)) return String(value); // JSON has none
  return typeof value === "string" ? value : JSON.stringify(value ?? null);
}
