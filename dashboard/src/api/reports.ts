// The reports of one trial: read on from where the last read ended, and of very many the newest.
import { read, trialUrl } from "./client";
import type { Metric, Page } from "./shapes";

export const MOST_REPORTS = 50_000; // that the page keeps
const PAGE = 10_000; // of the first read
const STEP = 1_000; // of those that follow, which read the last, unfilled page again

export interface Reports {
  items: readonly Metric[];
  /** How many came before these. */
  leftOut: number;
}

/** `hasEnded`: whether no report will follow any more; then nothing is read that was read since. */
export function reportsReader(
  id: string,
  number: number,
  hasEnded: () => boolean,
): (signal: AbortSignal) => Promise<Reports> {
  let pages: Metric[] = [];
  let leftOut = 0;
  let cursor: string | null = null;
  let whole: Reports | null = null;
  let limit = PAGE;
  return async (signal) => {
    if (whole) return whole;
    const isLast = hasEnded();
    for (;;) {
      const from: string = cursor ? `&cursor=${encodeURIComponent(cursor)}` : "";
      const page: Page<Metric> = await read(trialUrl(id, number, `/metrics?limit=${limit}${from}`), signal);
      const all = [...pages, ...page.items];
      const over = Math.max(0, all.length - MOST_REPORTS);
      const kept = all.slice(over);
      if (page.next === null) {
        const found = { items: kept, leftOut: leftOut + over };
        limit = STEP;
        if (isLast) whole = found;
        return found;
      }
      pages = kept;
      leftOut += over;
      cursor = page.next;
    }
  };
}
