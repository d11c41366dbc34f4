// The filter of the address applied to the trials: what tables show and plots draw faintly.
import { useMemo } from "preact/hooks";
import type { TrialsState } from "../api/trials";
import { amend, query } from "../state/address";
import {
  compile,
  conjuncts,
  type Filter,
  FilterError,
  parseFilter,
  passing,
  withBrush,
  writeFilter,
} from "../state/filters";

export interface Filtered {
  text: string;
  filter: Filter;
  fault: string;
  /** Those that pass, by row; null where there is no filter. */
  passes: Uint8Array | null;
  rows: Int32Array;
  revision: number;
}

export function useFiltered(state: TrialsState): Filtered {
  const text = query.value.get("q") ?? "";
  const revision = state.revision.value;
  return useMemo(() => filtered(state, text, revision), [state, text, revision]);
}

function filtered({ trials }: TrialsState, text: string, revision: number): Filtered {
  let filter: Filter = { is: "all" };
  let fault = "";
  try {
    filter = parseFilter(text);
    const test = compile(filter, trials);
    const rows = passing(trials, test);
    const passes = filter.is === "all" ? null : new Uint8Array(trials.length);
    if (passes) for (const row of rows) passes[row] = 1;
    return { text, filter, fault, passes, rows, revision };
  } catch (error) {
    if (!(error instanceof FilterError)) throw error;
    fault = error.message;
  }
  return {
    text,
    filter: { is: "all" },
    fault: trials.length > 0 ? fault : "",
    passes: null,
    rows: passing(trials, () => true),
    revision,
  };
}

/** Puts a brush on a name into the filter of the address, in place of the one before. */
export function brush(filter: Filter, name: string, part: Filter | null): void {
  amend({ q: writeFilter(withBrush(filter, name, part)) });
}

export function brushesOf(filter: Filter): { name: string; part: Filter }[] {
  return conjuncts(filter).flatMap((part) =>
    part.is === "range" || part.is === "among" ? [{ name: part.name, part }] : [],
  );
}
