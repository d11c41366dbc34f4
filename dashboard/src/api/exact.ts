// JSON whose whole numbers stay what they are: a browser's own numbers are exact up to 2^53 alone.

type Revived = (key: string, value: unknown, context?: { source?: string }) => unknown;
interface JsonWithSource {
  parse(text: string, revive: Revived): unknown;
  rawJSON?(text: string): object;
}

const json = JSON as unknown as JsonWithSource;
const LONG = /(?:^|[[:,\s])-?\d{16,}(?=$|[\],}\s])/; // a look that is cheap: most answers have no such number
const WHOLE = /^-?\d+$/;

// Whatever writes a value as JSON writes such a number by its digits.
Object.defineProperty(BigInt.prototype, "toJSON", {
  configurable: true,
  value(this: bigint) {
    return json.rawJSON ? json.rawJSON(String(this)) : Number(this);
  },
});

/** As `JSON.parse`, but a whole number that a browser would round is a `bigint`; an older browser rounds it. */
export function parsed(text: string): unknown {
  if (!json.rawJSON || !LONG.test(text)) return JSON.parse(text);
  return json.parse(text, (_, value, context) =>
    typeof value === "number" && context?.source !== undefined ? whole(context.source, value) : value,
  );
}

/** A number that was written as `text`. */
export function whole(text: string, value: number): number | bigint {
  return WHOLE.test(text) && !Number.isSafeInteger(value) ? BigInt(text) : value;
}

/** The same for a library that reads all whole numbers as `bigint`. */
export function unlessSafe(_: unknown, value: unknown): unknown {
  return typeof value === "bigint" && Number.isSafeInteger(Number(value)) ? Number(value) : value;
}
