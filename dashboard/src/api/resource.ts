// What a page reads: kept while it is read anew, so that nothing jumps, and read anew when the service says so.
import { type Signal, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { Problem } from "./client";
import { type Topic, watch } from "./live";

export interface Resource<T> {
  data: Signal<T | undefined>;
  problem: Signal<Problem | undefined>;
  reload(): void;
}

const LEAST_BETWEEN_MS = 250; // at most four a second

/** Calls `load` now and whenever one of `topics` has changed; never twice at once. */
export function makeResource<T>(
  load: (signal: AbortSignal) => Promise<T>,
  topics: readonly Topic[],
  pace = LEAST_BETWEEN_MS,
) {
  const data = signal<T | undefined>(undefined);
  const problem = signal<Problem | undefined>(undefined);
  let busy = false;
  let again = false;
  let last = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let abort = new AbortController();
  let closed = false;

  async function run(): Promise<void> {
    timer = undefined;
    busy = true;
    again = false;
    last = performance.now();
    try {
      const found = await load(abort.signal);
      if (!closed) {
        data.value = found;
        problem.value = undefined;
      }
    } catch (error) {
      if (!closed && !abort.signal.aborted) problem.value = asProblem(error);
    } finally {
      busy = false;
      if (again && !closed) reload();
    }
  }

  function reload(): void {
    if (closed) return;
    if (busy) again = true;
    else if (timer === undefined) timer = setTimeout(run, Math.max(0, last + pace - performance.now()));
  }

  function open(): () => void {
    closed = false;
    abort = new AbortController();
    void run();
    const stop = watch(topics, reload);
    return () => {
      closed = true;
      stop();
      abort.abort();
      clearTimeout(timer);
      timer = undefined;
    };
  }
  return { data, problem, reload, open };
}

export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  return new Problem(-1, "The page made a mistake", error instanceof Error ? error.message : String(error));
}

export function useResource<T>(
  key: readonly unknown[],
  load: (signal: AbortSignal) => Promise<T>,
  topics: readonly Topic[],
  pace?: number,
): Resource<T> {
  const resource = useMemo(() => makeResource(load, topics, pace), key);
  useEffect(() => resource.open(), [resource]);
  return resource;
}
