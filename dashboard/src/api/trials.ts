// The trials of one experiment as columns, kept while the page is open and changed by what the service sends.
import { type Signal, signal } from "@preact/signals";
import { type TableAnswer, Trials } from "../state/columns";
import { experimentUrl, read } from "./client";

const COLUMNS = "number,status,reason,value,step,attempts,started_at,ended_at,running_s,parameters.*";

const PAGE = 20_000; // trials of one answer

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
  return {
    trials,
    revision,
    async load(abort) {
      let cursor: string | null = null;
      let newest: string | null = null;
      let changed = false;
      do {
        const query = new URLSearchParams({ columns: COLUMNS, limit: String(PAGE) });
        if (cursor) query.set("cursor", cursor);
        if (since !== null) query.set("since", since);
        const answer: Answer = await read(experimentUrl(id, `/table?${query}`), abort);
        newest ??= answer.revision;
        changed = trials.apply(answer.columns) || changed;
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
