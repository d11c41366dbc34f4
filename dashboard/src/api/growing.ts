// Lists to which the service only ever adds.
import { read } from "./client";
import type { Page } from "./shapes";

/** Reads on from the last page it has, which may have grown; of a long list the newest `most` are kept, about. */
export function newestOf<T>(path: string, most: number): (signal: AbortSignal) => Promise<T[]> {
  let whole: T[] = [];
  let cursor: string | null = null;
  return async (signal) => {
    for (;;) {
      const from: string = cursor
        ? `${path.includes("?") ? "&" : "?"}cursor=${encodeURIComponent(cursor)}`
        : "";
      const page: Page<T> = await read(path + from, signal);
      if (page.next === null) return [...whole, ...page.items];
      whole = [...whole, ...page.items].slice(-most);
      cursor = page.next;
    }
  };
}
