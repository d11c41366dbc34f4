// The time, once a second: what is told by ages and durations follows it.
import { signal } from "@preact/signals";

export const now = signal(Date.now());

const loaded = new WeakMap<object, number>();
/** When an answer was first asked about, which is about when it came. */
export function loadedAt(answer: object): number {
  const at = loaded.get(answer) ?? Date.now();
  loaded.set(answer, at);
  return at;
}

setInterval(() => {
  if (document.visibilityState === "visible") now.value = Date.now();
}, 1_000);
