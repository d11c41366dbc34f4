// One small language for tables, plots and the address:
//   status = failed and lr < 0.01      optimizer in {sgd, adam}      lr in 0.001..0.01      not (value > 3)
//   a word alone is a status or a text that any cell may hold: `failed`, `adam`; `#37` is the trial 37.
import { own } from "../api/shapes";
import { type Column, STATUS_CODE, STATUSES, type Trials } from "./columns";

export class FilterError extends Error {
  constructor(
    message: string,
    readonly at: number,
  ) {
    super(message);
  }
}

export type Filter =
  | { is: "all" }
  | { is: "and" | "or"; parts: Filter[] }
  | { is: "not"; part: Filter }
  | { is: "compare"; name: string; sign: string; value: string }
  | { is: "range"; name: string; low: number; high: number }
  | { is: "among"; name: string; values: string[] }
  | { is: "trial"; number: number }
  | { is: "word"; text: string };

interface Token {
  kind: "word" | "text" | "sign" | "end";
  text: string;
  at: number;
}

const SIGNS = ["<=", ">=", "!=", "..", "=", "<", ">", "~", "(", ")", "{", "}", ",", "#"];
const MOST_CHARACTERS = 4_000;
const MOST_DEPTH = 50;

function tokens(text: string): Token[] {
  if (text.length > MOST_CHARACTERS)
    throw new FilterError(`has ${text.length} characters; at most ${MOST_CHARACTERS}`, 0);
  const found: Token[] = [];
  let at = 0;
  while (at < text.length) {
    const rest = text.slice(at);
    const space = /^\s+/.exec(rest);
    if (space) {
      at += space[0].length;
      continue;
    }
    const quoted = /^"((?:[^"\\]|\\.)*)"/.exec(rest);
    const sign = SIGNS.find((one) => rest.startsWith(one));
    if (quoted) found.push({ kind: "text", text: quoted[1].replace(/\\(.)/g, "$1"), at });
    else if (rest[0] === '"') throw new FilterError('a " without its end', at);
    else if (sign) found.push({ kind: "sign", text: sign, at });
    const word = /^(?:(?!\.\.)[^\s"<>=!~(){},#])+/.exec(rest);
    if (!quoted && !sign) {
      if (!word) throw new FilterError(`${rest[0]} is not understood`, at);
      found.push({ kind: "word", text: word[0], at });
    }
    at += quoted?.[0].length ?? sign?.length ?? word?.[0].length ?? 1;
  }
  found.push({ kind: "end", text: "", at });
  return found;
}

class Parser {
  private place = 0;
  private depth = 0;
  private readonly tokens: Token[];

  constructor(text: string) {
    this.tokens = tokens(text);
  }

  whole(): Filter {
    if (this.over) return { is: "all" };
    const filter = this.or();
    if (this.next.kind !== "end")
      throw new FilterError(`"${this.next.text}" was not expected here`, this.next.at);
    return filter;
  }

  private get next(): Token {
    return this.tokens[this.place];
  }

  /** Nothing is left. */
  private get over(): boolean {
    return this.next.kind === "end";
  }

  private take(): Token {
    return this.tokens[this.place++];
  }

  private takes(text: string): boolean {
    if (this.next.kind === "text" || this.next.kind === "end" || this.next.text.toLowerCase() !== text)
      return false;
    this.place++;
    return true;
  }

  private or(): Filter {
    const parts = [this.and()];
    while (this.takes("or")) parts.push(this.and());
    return parts.length === 1 ? parts[0] : { is: "or", parts };
  }

  private and(): Filter {
    const parts = [this.not()];
    for (;;) {
      if (this.takes("and")) parts.push(this.not());
      else if (this.next.kind === "end" || this.next.text === ")" || this.next.text.toLowerCase() === "or")
        break;
      else parts.push(this.not()); // two conditions beside one another hold together
    }
    return parts.length === 1 ? parts[0] : { is: "and", parts };
  }

  private not(): Filter {
    if (++this.depth > MOST_DEPTH) throw new FilterError("is nested too deeply", this.next.at);
    try {
      if (this.takes("not")) return { is: "not", part: this.not() };
      if (this.takes("(")) {
        const inner = this.or();
        if (!this.takes(")")) throw new FilterError("a ) is missing", this.next.at);
        return inner;
      }
      return this.condition();
    } finally {
      this.depth--;
    }
  }

  private condition(): Filter {
    if (this.takes("#")) {
      const token = this.take();
      const number = Number(token.text);
      if (!Number.isInteger(number)) throw new FilterError("a # needs the number of a trial", token.at);
      return { is: "trial", number };
    }
    const name = this.take();
    if (name.kind === "end") throw new FilterError("something is missing at the end", name.at);
    if (name.kind === "sign" || (name.kind === "word" && /^(and|or)$/i.test(name.text)))
      throw new FilterError(`"${name.text}" was not expected here`, name.at);
    if (name.kind === "word" && this.takes("in")) return this.inside(name.text);
    if (name.kind === "text" && this.takes("in")) return this.inside(name.text);
    if (this.next.kind === "sign" && ["<=", ">=", "!=", "=", "<", ">", "~"].includes(this.next.text)) {
      const sign = this.take().text;
      return { is: "compare", name: name.text, sign, value: this.value() };
    }
    return { is: "word", text: name.text };
  }

  private value(): string {
    const token = this.take();
    if (token.kind === "end" || token.kind === "sign") throw new FilterError("a value is missing", token.at);
    return token.text;
  }

  private inside(name: string): Filter {
    if (this.takes("{")) {
      const values = [this.value()];
      while (this.takes(",")) values.push(this.value());
      if (!this.takes("}")) throw new FilterError("a } is missing", this.next.at);
      return { is: "among", name, values };
    }
    const at = this.next.at;
    const low = Number(this.value());
    if (!this.takes(".."))
      throw new FilterError("a range is written low..high, several values {a, b}", this.next.at);
    const high = Number(this.value());
    if (Number.isNaN(low) || Number.isNaN(high)) throw new FilterError("the ends of a range are numbers", at);
    return { is: "range", name, low, high };
  }
}

/** FilterError says what is wrong, and where. */
export function parseFilter(text: string): Filter {
  return new Parser(text).whole();
}

export function writeFilter(filter: Filter): string {
  switch (filter.is) {
    case "all":
      return "";
    case "and":
    case "or":
      return filter.parts
        .map((part) => (part.is === "or" || part.is === "and" ? `(${writeFilter(part)})` : writeFilter(part)))
        .join(` ${filter.is} `);
    case "not":
      return `not (${writeFilter(filter.part)})`;
    case "compare":
      return `${quoted(filter.name)} ${filter.sign} ${quoted(filter.value)}`;
    case "range":
      return `${quoted(filter.name)} in ${filter.low}..${filter.high}`;
    case "among":
      return `${quoted(filter.name)} in {${filter.values.map(quoted).join(", ")}}`;
    case "trial":
      return `#${filter.number}`;
    case "word":
      return quoted(filter.text);
  }
}

function quoted(text: string): string {
  const plain = /^[^\s"<>=!~(){},#]+$/.test(text) && !text.includes("..") && !/^(and|or|not|in)$/i.test(text);
  return plain ? text : `"${text.replace(/["\\]/g, "\\$&")}"`;
}

/** The conditions that hold together at the top, which is where a brush puts its own. */
export function conjuncts(filter: Filter): Filter[] {
  if (filter.is === "all") return [];
  return filter.is === "and" ? filter.parts : [filter];
}

export function joined(parts: Filter[]): Filter {
  if (parts.length === 0) return { is: "all" };
  return parts.length === 1 ? parts[0] : { is: "and", parts };
}

/** The filter with one condition on `name` in place of what brushes had put there; none with null. */
export function withBrush(filter: Filter, name: string, brush: Filter | null): Filter {
  const others = conjuncts(filter).filter(
    (part) => !((part.is === "range" || part.is === "among") && part.name === name),
  );
  return joined(brush ? [...others, brush] : others);
}

export type Test = (row: number) => boolean;

/** A test of rows. FilterError where a name is no column. */
export function compile(filter: Filter, trials: Trials): Test {
  switch (filter.is) {
    case "all":
      return () => true;
    case "and": {
      const parts = filter.parts.map((part) => compile(part, trials));
      return (row) => parts.every((part) => part(row));
    }
    case "or": {
      const parts = filter.parts.map((part) => compile(part, trials));
      return (row) => parts.some((part) => part(row));
    }
    case "not": {
      const part = compile(filter.part, trials);
      return (row) => !part(row);
    }
    case "trial":
      return (row) => trials.number[row] === filter.number;
    case "word":
      return compileWord(filter.text, trials);
    default:
      return compileCondition(filter, trials);
  }
}

function compileWord(text: string, trials: Trials): Test {
  const wanted = text.toLowerCase().replace(/[\s-]+/g, "_");
  const code = own<number>(STATUS_CODE, wanted);
  if (code !== undefined) return (row) => trials.status[row] === code;
  const columns = [trials.reason, ...trials.parameters.values()].filter(
    (column) => column.kind === "category",
  );
  const sets = columns.map((column) => {
    const hits = new Set<number>();
    column.labels.forEach((label, place) => {
      if (label.toLowerCase().includes(text.toLowerCase())) hits.add(place);
    });
    return { column, hits };
  });
  return (row) => sets.some(({ column, hits }) => hits.has(column.data[row]));
}

const NUMBERS: Record<string, (trials: Trials, row: number) => number> = {
  number: (trials, row) => trials.number[row],
  value: (trials, row) => trials.value[row],
  step: (trials, row) => trials.step[row],
  attempts: (trials, row) => trials.attempts[row],
  duration: (trials, row) => trials.running[row],
};

const OWN_NAMES: ReadonlySet<string> = new Set(["status", "reason", ...Object.keys(NUMBERS)]);
const PARAMETERS = "parameters.";

/** The name of a parameter in filters: its own, or `parameters.value` where every trial has something of that name. */
export function parameterInFilters(name: string): string {
  return OWN_NAMES.has(name) || name.startsWith(PARAMETERS) ? PARAMETERS + name : name;
}

function parameterCalled(name: string, trials: Trials): Column | undefined {
  const plain = name.startsWith(PARAMETERS) ? trials.find(name.slice(PARAMETERS.length)) : undefined;
  return plain ?? trials.find(name);
}

function compileCondition(filter: Filter, trials: Trials): Test {
  if (filter.is !== "compare" && filter.is !== "range" && filter.is !== "among") return () => true;
  const { name } = filter;
  if (name === "status") return statusTest(filter, trials);
  if (name === "reason") return columnTest(filter, trials.reason);
  const read = own(NUMBERS, name);
  if (read) {
    const test = numberTest(filter);
    return (row) => test(read(trials, row));
  }
  const column = parameterCalled(name, trials);
  if (!column) {
    const parameters = [...trials.parameters.keys()].slice(0, 20).map(parameterInFilters);
    const known = [...OWN_NAMES, ...parameters].join(", ");
    throw new FilterError(`there is no column ${name}; there are ${known}`, 0);
  }
  return columnTest(filter, column);
}

function statusTest(filter: Filter, trials: Trials): Test {
  const column: Column = {
    name: "status",
    kind: "category",
    data: new Float64Array(0),
    labels: [...STATUSES],
    places: new Map(),
  };
  const hits = labelHits(filter, column);
  return (row) => hits.has(trials.status[row]);
}

function columnTest(filter: Filter, column: Column): Test {
  if (column.kind === "category") {
    const hits = labelHits(filter, column);
    return (row) => hits.has(column.data[row]);
  }
  const test = numberTest(filter);
  return (row) => test(column.data[row]);
}

function labelHits(filter: Filter, column: Column): Set<number> {
  const hits = new Set<number>();
  column.labels.forEach((label, place) => {
    if (labelHit(filter, label)) hits.add(place);
  });
  return hits;
}

function labelHit(filter: Filter, label: string): boolean {
  if (filter.is === "among") return filter.values.includes(label);
  if (filter.is === "range") return numberTest(filter)(Number(label));
  if (filter.is !== "compare") return false;
  if (filter.sign === "=") return label === filter.value;
  if (filter.sign === "!=") return label !== filter.value;
  if (filter.sign === "~") return label.toLowerCase().includes(filter.value.toLowerCase());
  return numberTest(filter)(Number(label));
}

function numberTest(filter: Filter): (value: number) => boolean {
  if (filter.is === "range") return (value) => value >= filter.low && value <= filter.high;
  if (filter.is === "among") {
    const wanted = filter.values.map(Number);
    return (value) => wanted.includes(value);
  }
  if (filter.is !== "compare") return () => true;
  const wanted = Number(filter.value);
  switch (filter.sign) {
    case "=":
      return Number.isNaN(wanted) ? Number.isNaN : (value) => value === wanted;
    case "!=":
      return (value) => value !== wanted && !Number.isNaN(value);
    case "<":
      return (value) => value < wanted;
    case "<=":
      return (value) => value <= wanted;
    case ">":
      return (value) => value > wanted;
    case ">=":
      return (value) => value >= wanted;
    default:
      return (value) => String(value).includes(filter.value);
  }
}

/** The rows that pass, in their order. */
export function passing(trials: Trials, test: Test): Int32Array {
  const rows = new Int32Array(trials.length);
  let count = 0;
  for (let row = 0; row < trials.length; row++) if (test(row)) rows[count++] = row;
  return rows.subarray(0, count);
}
