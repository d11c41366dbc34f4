// JSON whose numbers stay what they are: a browser's own are exact up to 2^53 alone, and do not tell 1.0 from 1.
import type { ScalarTag, Tags } from "yaml";

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

/**
 * A float that is a whole number: 1.0 is no 1 for the scripts that are given it. It is written as what it is, by an older
 * browser as a whole number.
 */
export class WholeFloat {
  constructor(readonly float: number) {}

  toString(): string {
    const text = Object.is(this.float, -0) ? "-0" : String(this.float);
    return text.includes(".") ? text : text.replace(/(?=e|$)/, ".0");
  }

  toJSON(): unknown {
    return json.rawJSON ? json.rawJSON(String(this)) : this.float;
  }
}

/** As `parsed`, and a float that is a whole number stays one: for what is sent again, or shown to be copied. */
export function exactly(text: string): unknown {
  if (!json.rawJSON) return JSON.parse(text);
  return json.parse(text, (_, value, context) =>
    typeof value === "number" && context?.source !== undefined ? asWritten(context.source, value) : value,
  );
}

function asWritten(text: string, value: number): unknown {
  return WHOLE.test(text) ? whole(text, value) : float(value);
}

/** A number that has to be a float. */
export function float(value: number): number | WholeFloat {
  return Number.isInteger(value) ? new WholeFloat(value) : value;
}

const FLOAT: ScalarTag = {
  tag: "tag:yaml.org,2002:float",
  default: true,
  test: /^[-+]?(?:\d+\.\d*|\.\d+|(?:\d+(?:\.\d*)?|\.\d+)[eE][-+]?\d+)$/,
  identify: (value) => value instanceof WholeFloat,
  resolve: (text) => float(Number(text)),
  stringify: ({ value }) => String(value),
};

/** For `customTags` of the library of YAML: such floats are read and written as they stand. */
export function floats(tags: Tags): Tags {
  return [FLOAT, ...tags];
}

/** A number that was written as `text`. */
export function whole(text: string, value: number): number | bigint {
  return WHOLE.test(text) && !Number.isSafeInteger(value) ? BigInt(text) : value;
}

/** The same for a library that reads all whole numbers as `bigint`. */
export function unlessSafe(_: unknown, value: unknown): unknown {
  return typeof value === "bigint" && Number.isSafeInteger(Number(value)) ? Number(value) : value;
}
