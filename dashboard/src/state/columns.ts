// The trials of an experiment column by column: typed arrays that grow, and patches that change single rows.
import { cell, moment, numeric } from "./format";

export const STATUSES = [
  "waiting",
  "running",
  "paused",
  "stopping",
  "succeeded",
  "failed",
  "early_stopped",
  "canceled",
] as const;
export type Status = (typeof STATUSES)[number];
export const STATUS_CODE = Object.fromEntries(STATUSES.map((status, code) => [status, code])) as Record<
  Status,
  number
>;
export const ENDED: ReadonlySet<string> = new Set(["succeeded", "failed", "early_stopped", "canceled"]);

/**
 * For how long a trial has run, in seconds. The service tells it with what else changes: of one that says nothing it is
 * counted on from when it was `told`.
 */
export function ranFor(trial: { status: string; ran: number; told: number }, now: number): number {
  const goesOn = trial.status === "running" || trial.status === "stopping";
  const since = (now - trial.told) / 1_000;
  return goesOn && since > 0 ? trial.ran + since : trial.ran;
}

const NUMBERS = [
  "number",
  "value",
  "last",
  "step",
  "attempts",
  "started",
  "ended",
  "running",
  "told",
  "reported",
] as const;
const NO_LABEL = -1;
const MOST_LABELS = 10_000; // different texts of one column; those beyond it are told by the last one, OTHER, together
const OTHER = "…";

/** A column of numbers (NaN where there is none), or of texts by their place among `labels`. */
export interface Column {
  name: string;
  kind: "number" | "category";
  data: Float64Array;
  labels: string[];
  places: Map<string, number>;
}

/** What `/table` answers: one array for each column, or codes beside a dictionary. */
export type TableColumn = readonly unknown[] | { codes: readonly number[]; words: readonly unknown[] };
export type TableAnswer = Record<string, TableColumn>;

export class Trials {
  length = 0;
  number = new Float64Array(64);
  status = new Uint8Array(64);
  value = new Float64Array(64);
  /** 1 where there is a value, which may be NaN. */
  valued = new Uint8Array(64);
  /** The objective as last reported; where there is a `step`, of that. */
  last = new Float64Array(64);
  step = new Float64Array(64);
  attempts = new Float64Array(64);
  started = new Float64Array(64);
  ended = new Float64Array(64);
  running = new Float64Array(64);
  /** Of which moment `running` is. */
  told = new Float64Array(64);
  /** When a trial that has not ended reported anything the last time. */
  reported = new Float64Array(64);
  reason: Column = emptyColumn("reason");
  readonly parameters = new Map<string, Column>();
  private readonly rows = new Map<number, number>();

  rowOf(number: number): number | undefined {
    return this.rows.get(number);
  }

  statusOf(row: number): Status {
    return STATUSES[this.status[row]];
  }

  /** Adds or changes the trials of an answer, which came at `at`; true where anything is different from before. */
  apply(table: TableAnswer, at = Number.NaN): boolean {
    const numbers = entries(table.number);
    const rows = numbers.map((number) => this.rowFor(Number(number)));
    if (rows.length === 0) return false;
    this.fill(this.status, table.status, rows, (status) => STATUS_CODE[status as Status] ?? 0);
    this.fill(this.value, table.value, rows, toNumber);
    this.fill(this.valued, table.value, rows, (value) => (value === null || value === undefined ? 0 : 1));
    this.fill(this.last, table.last_value, rows, toNumber);
    this.fill(this.step, table.step, rows, toNumber);
    this.fill(this.attempts, table.attempts, rows, toNumber);
    this.fill(this.running, table.running_s, rows, toNumber);
    this.fill(this.told, table.running_s, rows, () => at);
    this.fill(this.started, table.started_at, rows, toMoment);
    this.fill(this.ended, table.ended_at, rows, toMoment);
    this.fill(this.reported, table.reported_at, rows, toMoment);
    if (table.reason) this.fillColumn(this.reason, entries(table.reason), rows);
    if (table.parameters) this.fillParameters(entries(table.parameters), rows);
    for (const [name, column] of Object.entries(table))
      if (name.startsWith("parameters.")) this.fillColumn(this.column(name.slice(11)), entries(column), rows);
    return true;
  }

  /** What a trial that has not ended has reached, which may be NaN; null where it has ended or reached nothing. */
  soFar(row: number): number | null {
    return ENDED.has(this.statusOf(row)) || Number.isNaN(this.step[row]) ? null : this.last[row];
  }

  ranFor(row: number, now: number): number {
    return ranFor({ status: this.statusOf(row), ran: this.running[row], told: this.told[row] }, now);
  }

  /** What is sorted and filtered by is as of `now`. */
  countOn(now: number): void {
    for (let row = 0; row < this.length; row++) {
      this.running[row] = this.ranFor(row, now);
      this.told[row] = Math.max(this.told[row], now);
    }
  }

  /** Every column that filters, tables and plots know by name. */
  find(name: string): Column | undefined {
    return this.parameters.get(name);
  }

  text(column: Column, row: number): string {
    const found = column.data[row];
    if (column.kind === "category") return found >= 0 ? column.labels[found] : "–";
    return Number.isNaN(found) ? "–" : cell(found);
  }

  private rowFor(number: number): number {
    const known = this.rows.get(number);
    if (known !== undefined) return known;
    const row = this.length;
    if (row === this.number.length) this.grow(row * 2);
    this.rows.set(number, row);
    this.number[row] = number;
    for (const column of this.parameters.values())
      column.data[row] = column.kind === "number" ? Number.NaN : NO_LABEL;
    this.reason.data[row] = NO_LABEL;
    this.length = row + 1;
    return row;
  }

  private grow(size: number): void {
    for (const name of NUMBERS) this[name] = grown(this[name], size);
    for (const name of ["status", "valued"] as const) {
      const bigger = new Uint8Array(size);
      bigger.set(this[name]);
      this[name] = bigger;
    }
    for (const column of [this.reason, ...this.parameters.values()]) column.data = grown(column.data, size);
  }

  private fill(
    into: Float64Array | Uint8Array,
    from: TableColumn | undefined,
    rows: readonly number[],
    convert: (value: unknown) => number,
  ): void {
    if (!from) return;
    const values = entries(from);
    for (let index = 0; index < rows.length; index++) into[rows[index]] = convert(values[index]);
  }

  private fillParameters(objects: readonly unknown[], rows: readonly number[]): void {
    for (let index = 0; index < rows.length; index++) {
      flatten(objects[index], "", (name, value) => this.put(this.column(name), rows[index], value));
    }
  }

  private column(name: string): Column {
    let column = this.parameters.get(name);
    if (!column) {
      column = emptyColumn(name, this.number.length);
      this.parameters.set(name, column);
    }
    return column;
  }

  private fillColumn(column: Column, values: readonly unknown[], rows: readonly number[]): void {
    for (let index = 0; index < rows.length; index++) this.put(column, rows[index], values[index]);
  }

  private put(column: Column, row: number, value: unknown): void {
    if (value === null || value === undefined) {
      column.data[row] = column.kind === "number" ? Number.NaN : NO_LABEL;
      return;
    }
    const found = typeof value === "bigint" ? null : numeric(value); // a column of numbers would round it
    if (column.kind === "number") {
      if (found !== null) {
        column.data[row] = found;
        return;
      }
      this.makeCategory(column);
    }
    column.data[row] = label(column, typeof value === "string" ? value : JSON.stringify(value));
  }

  /** A text has come into a column that was of numbers so far. */
  private makeCategory(column: Column): void {
    column.kind = "category";
    for (let row = 0; row < column.data.length; row++) {
      const value = row < this.length ? column.data[row] : Number.NaN;
      column.data[row] = Number.isNaN(value) ? NO_LABEL : label(column, JSON.stringify(value));
    }
  }
}

function emptyColumn(name: string, size = 64): Column {
  return {
    name,
    kind: "number",
    data: new Float64Array(size).fill(Number.NaN),
    labels: [],
    places: new Map(),
  };
}

function label(column: Column, text: string): number {
  const known = column.places.get(text);
  if (known !== undefined) return known;
  if (column.labels.length === MOST_LABELS) return MOST_LABELS - 1;
  if (column.labels.length === MOST_LABELS - 1) text = OTHER;
  column.places.set(text, column.labels.length);
  return column.labels.push(text) - 1;
}

function grown(from: Float64Array, size: number): Float64Array<ArrayBuffer> {
  const made = new Float64Array(size).fill(Number.NaN);
  made.set(from);
  return made;
}

function entries(column: TableColumn | undefined): readonly unknown[] {
  if (!column) return [];
  if (Array.isArray(column)) return column;
  const { codes, words } = column as { codes: readonly number[]; words: readonly unknown[] };
  return codes.map((code) => (code < 0 ? null : words[code]));
}

function toNumber(value: unknown): number {
  return numeric(value) ?? Number.NaN;
}

function toMoment(value: unknown): number {
  if (typeof value === "number") return value < 1e11 ? value * 1_000 : value;
  return moment(value as string | null) ?? Number.NaN;
}

/** The names and values of parameters; those of a nested choice as `layer._name` and `layer.kernel`. */
export function flatten(value: unknown, name: string, found: (name: string, value: unknown) => void): void {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    for (const [key, inner] of Object.entries(value)) flatten(inner, name ? `${name}.${key}` : key, found);
  } else if (name) {
    found(name, value);
  }
}
