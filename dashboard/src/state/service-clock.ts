// The time by the clock of the service. What it tells of is told by that; the clock of whoever looks may be hours off.

const LEAST_MS = 3_000; // less is the way of an answer, and that it names whole seconds

let ahead = 0; // of the clock of the browser, in milliseconds

/** The `Date` of an answer that came just now. */
export function heardDate(date: string | null, now = Date.now()): void {
  const told = Date.parse(date ?? "");
  if (Number.isNaN(told)) return;
  ahead = Math.abs(told - now) < LEAST_MS ? 0 : told - now;
}

/** Milliseconds, as `Date.now()`. */
export function serviceNow(): number {
  return Date.now() + ahead;
}
