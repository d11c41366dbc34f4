// Where a value lies in a plot, and which values are written at its axes.
import { number } from "../state/format";

const FAR = 1e6; // pixels: a line to what lies further outside is no other to the eye, and no canvas draws one to infinity

export interface Scale {
  kind: "linear" | "log" | "category";
  low: number;
  high: number;
  labels: readonly string[];
  /** NaN, which is nowhere, of what has no place: NaN, the infinities, and by its logarithm what is not positive. */
  at(value: number): number;
  invert(pixel: number): number;
  ticks(room: number): number[];
  write(value: number): string;
}

export interface Extent {
  low: number;
  high: number;
}

/** The smallest and largest finite value; of a log scale the positive ones only. */
export function extent(values: Iterable<number>, log = false): Extent | null {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  for (const value of values) {
    if (!Number.isFinite(value) || (log && value <= 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? { low, high } : null;
}

/** A little room at both ends; something around a single value. */
export function padded({ low, high }: Extent, log = false, share = 0.04): Extent {
  if (log) {
    const [from, to] = [Math.log10(low), Math.log10(high)];
    const room = to > from ? (to - from) * share : 0.5;
    return { low: Math.max(10 ** (from - room), Number.MIN_VALUE), high: atMost(10 ** (to + room)) };
  }
  const part = shrinking({ low, high });
  const room = high > low ? ((high * part - low * part) * share) / part : Math.abs(low) * 0.1 || 1;
  return { low: atMost(low - room), high: atMost(high + room) };
}

/** What a float holds of it, or no more than `most`. */
function atMost(value: number, most = Number.MAX_VALUE): number {
  return Math.max(-most, Math.min(most, value));
}

/** By which values are made smaller before one is taken from another: they may be further apart than a float holds. */
function shrinking({ low, high }: Extent): number {
  return Number.isFinite(high - low) ? 1 : 0.1;
}

export function makeScale(domain: Extent, from: number, to: number, log = false): Scale {
  const isLog = log && domain.low > 0;
  const part = isLog ? 1 : shrinking(domain);
  const move = isLog ? Math.log10 : (value: number) => value * part;
  const back = (value: number) => atMost(isLog ? 10 ** value : value / part);
  const [low, high] = [move(domain.low), move(domain.high)];
  const span = high - low || 1;
  return {
    kind: isLog ? "log" : "linear",
    low: domain.low,
    high: domain.high,
    labels: [],
    at: (value) => {
      const moved = move(value);
      return Number.isFinite(moved) ? atMost(from + ((moved - low) / span) * (to - from), FAR) : Number.NaN;
    },
    invert: (pixel) => back(low + ((pixel - from) / (to - from || 1)) * span),
    ticks: (room) => (isLog ? logTicks(domain, room) : linearTicks(domain, room)),
    write: (value) => number(value, tickDigits(domain, isLog)),
  };
}

export function categoryScale(labels: readonly string[], from: number, to: number): Scale {
  const step = (to - from) / Math.max(1, labels.length);
  const at = (value: number) => from + (value + 0.5) * step;
  return {
    kind: "category",
    low: 0,
    high: labels.length - 1,
    labels,
    at,
    invert: (pixel) => (pixel - from) / (step || 1) - 0.5,
    ticks: (room) => {
      const every = Math.max(1, Math.ceil(labels.length / Math.max(1, room)));
      return labels.map((_, place) => place).filter((place) => place % every === 0);
    },
    write: (value) => labels[value] ?? "",
  };
}

function tickDigits(domain: Extent, log: boolean): number {
  if (log) return 2;
  const span = Math.abs(domain.high - domain.low) || 1;
  const size = Math.max(Math.abs(domain.low), Math.abs(domain.high)) || 1;
  return Math.min(8, Math.max(2, Math.ceil(Math.log10(size / span)) + 2));
}

export function linearTicks({ low, high }: Extent, room: number): number[] {
  const part = shrinking({ low, high });
  if (part < 1 && Number.isFinite(low) && Number.isFinite(high))
    return linearTicks({ low: low * part, high: high * part }, room).map((tick) =>
      atMost(Number((tick / part).toPrecision(12))),
    );
  const span = high - low;
  if (!(span > 0) || !Number.isFinite(span)) return [low];
  const raw = span / Math.max(1, room);
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = size * ([1, 2, 5, 10].find((factor) => factor * size >= raw) ?? 10);
  const found: number[] = [];
  for (
    let index = Math.ceil(low / step - 1e-9);
    index * step <= high + step * 1e-9 && found.length < 50;
    index++
  )
    found.push(Number((index * step).toPrecision(12)));
  return found;
}

export function logTicks({ low, high }: Extent, room: number): number[] {
  const [from, to] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  const decades = to - from + 1;
  if (decades <= 1) {
    const found: number[] = [];
    for (let power = from - 1; power <= to + 1; power++)
      for (const factor of [1, 2, 5])
        if (factor * 10 ** power >= low && factor * 10 ** power <= high) found.push(factor * 10 ** power);
    return found.length >= 2 ? found : linearTicks({ low, high }, room);
  }
  const every = Math.max(1, Math.ceil(decades / Math.max(1, room)));
  const found: number[] = [];
  for (let power = from; power <= to; power += every) found.push(10 ** power);
  return found;
}

/** Whether a parameter's own space says that it is to be seen by its logarithm. */
export function isLogRange(range: unknown): boolean {
  if (typeof range !== "object" || range === null) return false;
  const { _type, log } = range as { _type?: string; log?: boolean };
  return log === true || (_type ?? "").includes("log");
}
