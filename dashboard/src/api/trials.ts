// The trials of one experiment as columns, kept while the page is open and changed by what the service sends.
import { type Signal, signal } from "@preact/signals";
import { type TableAnswer, Trials } from "../state/columns";
import { serviceNow } from "../state/service-clock";
import { experimentUrl, Problem, read } from "./client";

const FIXED = "number,status,reason,value,last_value,step,attempts,started_at,ended_at,running_s,reported_at";
/** How parameters are asked for, and how many trials of one answer: a column for each of them, and all of a trial together. */
const BY_NAME = { columns: `${FIXED},parameters.*`, limit: "20000" };
const TOGETHER = { columns: `${FIXED},parameters`, limit: "1000" };

interface Answer {
  columns: TableAnswer;
  next: string | null;
  revision: string;
  /** The revision that was asked for; null where it is known no more, and the answer is the whole. */
  since: string | null;
}

export interface TrialsState {
  trials: Trials;
  /** Counts the changes of `trials`, which is changed in its place. */
  revision: Signal<number>;
  load(signal: AbortSignal): Promise<number>;
}

export function trialsOf(id: string): TrialsState {
  const trials = new Trials();
  const revision = signal(0);
  let since: string | null = null;
  let form = BY_NAME;
  /** Of a space that has more parameters than the service tells columns, those of a trial come together. */
  async function ask(cursor: string | null, abort: AbortSignal): Promise<Answer> {
    const query = new URLSearchParams(form);
    if (cursor) query.set("cursor", cursor);
    if (since !== null) query.set("since", since);
    try {
      return await read<Answer>(experimentUrl(id, `/table?${query}`), abort);
    } catch (error) {
      if (form === TOGETHER || !isTooWide(error)) throw error;
      form = TOGETHER;
      return ask(cursor, abort);
    }
  }
  return {
    trials,
    revision,
    async load(abort) {
      let cursor: string | null = null;
      let newest: string | null = null;
      let changed = false;
      do {
        const answer: Answer = await ask(cursor, abort);
        newest ??= answer.revision;
        changed = trials.apply(answer.columns, serviceNow()) || changed;
        trials.countOn(serviceNow());
        cursor = answer.next;
        // Of many trials the first are shown already; the others come in one go, or every plot is drawn five times.
        if (cursor && since === null && revision.value === 0) revision.value++;
      } while (cursor);
      since = newest;
      if (changed || revision.value === 0) revision.value++;
      return revision.value;
    },
  };
}

function isTooWide(error: unknown): boolean {
  return (
    error instanceof Problem &&
    error.status === 422 &&
    error.faults.some((fault) => fault.pointer === "/query/columns")
  );
}
