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
/** From one look to the next so many times as long as the last one took: a busy service is asked less often. */
export const REST = 8;
const MOST_BETWEEN_MS = 3_000; // however long that was

/**
 * Calls `load` now and whenever one of `topics` has changed; never twice at once, and not sooner than `pace` after the
 * last time, but for what this page has done itself.
 */
export function makeResource<T>(
  load: (signal: AbortSignal) => Promise<T>,
  topics: readonly Topic[],
  pace = LEAST_BETWEEN_MS,
  watching = watch,
) {
  const data = signal<T | undefined>(undefined);
  const problem = signal<Problem | undefined>(undefined);
  let busy = false;
  let again = false;
  let soonAgain = false;
  let next = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let abort = new AbortController();
  let closed = false;

  async function run(): Promise<void> {
    timer = undefined;
    busy = true;
    again = soonAgain = false;
    const begun = performance.now();
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
      next = begun + Math.max(pace, Math.min(MOST_BETWEEN_MS, REST * (performance.now() - begun)));
      if (again && !closed) reload(soonAgain);
    }
  }

  function reload(soon: boolean): void {
    if (closed) return;
    if (busy) {
      again = true;
      soonAgain ||= soon;
      return;
    }
    if (timer !== undefined && !soon) return;
    clearTimeout(timer);
    timer = setTimeout(run, soon ? 0 : Math.max(0, next - performance.now()));
  }

  function open(): () => void {
    closed = false;
    abort = new AbortController();
    void run();
    const stop = watching(topics, reload);
    return () => {
      closed = true;
      stop();
      abort.abort();
      clearTimeout(timer);
      timer = undefined;
    };
  }
  return { data, problem, reload: () => reload(true), open };
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
