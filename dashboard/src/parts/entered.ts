// What people type into fields of numbers: a number, or a word beside the field. Nothing that is no number is ever sent.
import { Problem } from "../api/client";

const PLAIN = /^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i;
const SHOWN = 40; // characters of what was typed
const MOST_SHOWN = 500; // of what somebody else has written
const DAY_S = 86_400;

/** Raises a Problem, for whoever shows it at the field, where the text is no number that JSON can carry as it is. */
export function numberOf(text: string): number {
  const written = text.trim();
  if (written === "") throw notThat("a number should stand here");
  if (!PLAIN.test(written))
    throw notThat(`“${written.slice(0, SHOWN)}” is no number: digits alone, and a point before decimals`);
  const found = Number(written);
  if (!Number.isFinite(found) || (Number.isInteger(found) && !Number.isSafeInteger(found)))
    throw notThat(`${written.slice(0, SHOWN)} is more than a browser can count`);
  return found;
}

/** A bound of the budget: null, none, where nothing is written. */
export function boundOf(text: string): number | null {
  return text.trim() === "" ? null : numberOf(text);
}

/** How long a token is good: null, for ever, where nothing is written; days; or a duration, which the service reads. */
export function lastingOf(text: string): number | string | null {
  const written = text.trim();
  if (written === "") return null;
  if (!PLAIN.test(written)) return written;
  const days = numberOf(written);
  if (days <= 0)
    throw notThat("it should be good for longer than no time; for ever where nothing is written");
  return days * DAY_S;
}

/** What somebody began to change: where it has become another meanwhile, saving says so once, and then is meant so. */
export class Begun {
  constructor(public known: string) {}

  /** Raises a Problem where `now` is not what was known. */
  guard(now: string): void {
    if (now === this.known) return;
    this.known = now;
    const words = now === "" ? "nothing" : `“${now.slice(0, MOST_SHOWN)}”`;
    throw new Problem(
      412,
      "Changed meanwhile",
      `it has become ${words} meanwhile; saving again puts yours in its place`,
    );
  }
}

function notThat(detail: string): Problem {
  return new Problem(422, "Not understood", detail);
}
