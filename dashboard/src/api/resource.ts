// What a page reads: kept while it is read anew, so that nothing jumps, and read anew when the service says so.
import { type Signal, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { Problem, UNREACHABLE } from "./client";
import { type Topic, watch } from "./live";

export interface Resource<T> {
  data: Signal<T | undefined>;
  problem: Signal<Problem | undefined>;
  /** Whether what is there may be old: the last read was refused, or could not be answered twice. */
  stale: Signal<boolean>;
  reload(): void;
}

const LEAST_BETWEEN_MS = 250; // at most four a second
/** What changes without end is looked at less and less often, down to once a second, or half as often as its pace. */
const BUSY_MS = 1_000;
/** From one look to the next so many times as long as the last one took: a busy service is asked less often. */
export const REST = 8;
const MOST_BETWEEN_MS = 3_000; // however long that was
/** What could not be had for a reason that passes is asked for again after so long, then twice as long, up to the most. */
export const RETRY_MS = 2_000;
export const MOST_RETRY_MS = 32_000;

/**
 * Calls `load` now and whenever one of `topics` has changed; never twice at once, and not sooner than `pace` after the
 * last time, but for what this page has done itself. While one change follows another, that pause is doubled each time,
 * up to a second or twice `pace`; the first change after so long a rest is read at once. Where the service could not
 * answer, it is asked again by and by although nobody says that anything has changed.
 */
export function makeResource<T>(
  load: (signal: AbortSignal) => Promise<T>,
  topics: readonly Topic[],
  pace = LEAST_BETWEEN_MS,
  watching = watch,
) {
  const data = signal<T | undefined>(undefined);
  const problem = signal<Problem | undefined>(undefined);
  const stale = signal(false);
  let busy = false;
  let again = false;
  let soonAgain = false;
  let next = 0;
  let began = Number.NEGATIVE_INFINITY;
  let pause = pace;
  const longest = Math.max(BUSY_MS, 2 * pace);
  let timer: ReturnType<typeof setTimeout> | undefined;
  let retry: ReturnType<typeof setTimeout> | undefined;
  let patience = RETRY_MS;
  let abort = new AbortController();
  let closed = false;

  async function run(): Promise<void> {
    clearTimeout(timer);
    clearTimeout(retry);
    timer = undefined;
    busy = true;
    again = soonAgain = false;
    const begun = performance.now();
    began = begun;
    try {
      const found = await load(abort.signal);
      if (!closed) {
        data.value = found;
        problem.value = undefined;
        stale.value = false;
        patience = RETRY_MS;
      }
    } catch (error) {
      if (!closed && !abort.signal.aborted) {
        const isSecond = problem.value !== undefined;
        problem.value = asProblem(error);
        stale.value = isSecond || !mayPass(problem.value);
        if (mayPass(problem.value)) retryLater();
      }
    } finally {
      busy = false;
      const took = performance.now() - begun;
      const rest = Math.max(pause, Math.min(MOST_BETWEEN_MS, REST * took));
      next = begun + (pause < longest ? rest : untilTick(Date.now() - took, rest, longest));
      pause = Math.min(longest, 2 * pause);
      if (again && !closed) reload(soonAgain);
    }
  }

  function retryLater(): void {
    retry = setTimeout(run, patience);
    patience = Math.min(MOST_RETRY_MS, 2 * patience);
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
    const now = performance.now();
    if (now >= Math.max(next, began + longest)) pause = pace; // it rested
    timer = setTimeout(run, soon ? 0 : Math.max(0, next - now));
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
      clearTimeout(retry);
      timer = undefined;
    };
  }
  return { data, problem, stale, reload: () => reload(true), open };
}

/**
 * About `rest` from the moment `from`, to a whole `tick` of the clock on the wall: pages that look at the same thing all the time then do so at
 * the same moment, and what the service has for one of them is right for all.
 */
function untilTick(from: number, rest: number, tick: number): number {
  return Math.ceil((from + rest - tick / 2) / tick) * tick - from;
}

/** Whether the same read may come to something later, although nothing has changed. */
export function mayPass({ status }: Problem): boolean {
  return status === UNREACHABLE || status === 408 || status === 429 || status >= 500;
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
