// The experiment that is being written: one value that the form and the text both show and change.
import { type Json, own, type Values } from "../api/shapes";
import { store, stored } from "./stored";

export const STARTER = `name: my-search
objective: {metric: loss, goal: minimize}
search_space:
  lr: {type: float, low: 0.0001, high: 0.1, log: true}
  layers: {type: int, low: 1, high: 4}
  optimizer: {type: categorical, choices: [sgd, adam]}
tuner: auto
budget: {trials: 20, parallel: 2}
trial:
  command: python train.py
  code:
    files:
      - path: train.py
        content: |
          import trials

          with trials.init() as trial:
              lr = trial.parameters["lr"]
              for step in range(1, 11):
                  trial.report(step=step, loss=(lr - 0.01) ** 2 + 1 / step)
              trial.report_final(loss=(lr - 0.01) ** 2)
`;

/** The value at a JSON pointer; undefined where there is none. */
export function at(value: Json | undefined, pointer: string): Json | undefined {
  return steps(pointer).reduce<Json | undefined>((found, step) => {
    if (Array.isArray(found)) return found[Number(step)];
    return typeof found === "object" && found !== null ? own(found, step) : undefined;
  }, value);
}

function steps(pointer: string): string[] {
  return pointer
    .split("/")
    .slice(1)
    .map((step) => step.replace(/~1/g, "/").replace(/~0/g, "~"));
}

/** A copy with another value at a pointer; undefined takes it out. */
export function put(value: Values, pointer: string, entry: Json | undefined): Values {
  return changed(value, steps(pointer), entry) as Values;
}

function changed(
  value: Json | undefined,
  [step, ...rest]: string[],
  entry: Json | undefined,
): Json | undefined {
  if (step === undefined) return entry;
  const whole: Values = typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
  const inner = changed(own(whole, step), rest, entry);
  if (inner !== undefined) return { ...whole, [step]: inner };
  return Object.fromEntries(Object.entries(whole).filter(([name]) => name !== step));
}

/** What somebody has written and not started yet. */
export interface Kept {
  text: string;
  /** The body that was sent to be started, and its key: sent again with it, it is the same experiment. */
  asked: [string, string];
}

const KEPT = "draft";

/** Keeps it in this tab, whatever becomes of the session and the page, for who wrote it there. */
export function keepDraft(who: string, from: string | null, draft: Kept): void {
  store("sessionStorage", KEPT, JSON.stringify({ who, from, ...draft }));
}

/** `from`: the experiment that the draft was begun from. */
export function keptDraft(who: string, from: string | null): Kept | null {
  try {
    const { text, asked, ...of } = JSON.parse(stored("sessionStorage", KEPT) ?? "null") ?? {};
    return of.who === who && of.from === from ? { text: String(text), asked } : null;
  } catch {
    return null;
  }
}

export function forgetDraft(): void {
  store("sessionStorage", KEPT, null);
}

const WRITTEN = "written";

/** By who writes it and its name: what else is being written, a space, a note, the fields of a dialog. */
function allWritten(): Map<string, unknown> {
  try {
    return new Map(Object.entries(JSON.parse(stored("sessionStorage", WRITTEN) ?? "{}")));
  } catch {
    return new Map();
  }
}

function keyOf(who: string, name: string): string {
  return JSON.stringify([who, name]);
}

function storeWritten(all: ReadonlyMap<string, unknown>): boolean {
  return store("sessionStorage", WRITTEN, all.size > 0 ? JSON.stringify(Object.fromEntries(all)) : null);
}

/**
 * As a draft: in this tab, whatever becomes of the session and the page, for who writes it. Where the browser keeps no
 * more, what was written last is kept.
 */
export function keepWritten(who: string, name: string, value: unknown): void {
  const all = allWritten();
  all.delete(keyOf(who, name));
  all.set(keyOf(who, name), value);
  while (!storeWritten(all) && all.size > 1) all.delete(all.keys().next().value as string);
}

/** undefined where there is nothing of that name by who asks. */
export function keptWritten(who: string, name: string): unknown {
  return allWritten().get(keyOf(who, name));
}

/** What others wrote there stays: each has their own. */
export function forgetWritten(who: string, name: string): void {
  const all = allWritten();
  if (all.delete(keyOf(who, name))) storeWritten(all);
}

/** The experiments of which anybody wrote something here. */
export function experimentsWrittenOf(): string[] {
  const ids = [...allWritten().keys()].map((key) => / of ([^\s"]+)"\]$/.exec(key)?.[1] ?? "");
  return [...new Set(ids.filter(Boolean))];
}

/** What anybody wrote of experiments that are gone: its name ends with theirs. */
export function forgetWrittenOf(ids: readonly string[]): void {
  if (ids.length === 0) return;
  const ends = ids.map((id) => `${JSON.stringify(` of ${id}`).slice(1)}]`);
  const all = allWritten();
  const gone = [...all.keys()].filter((key) => ends.some((end) => key.endsWith(end)));
  for (const key of gone) all.delete(key);
  if (gone.length > 0) storeWritten(all);
}

/** Who signs out leaves nothing to the next one. */
export function forgetAllWritten(): void {
  forgetDraft();
  storeWritten(new Map());
}

export interface FieldFault {
  pointer: string;
  detail: string;
}

/** The faults that concern a field: at it, or below it. */
export function faultsAt(faults: readonly FieldFault[], pointer: string): FieldFault[] {
  return faults.filter((fault) => fault.pointer === pointer || fault.pointer.startsWith(`${pointer}/`));
}
