// The time of the service, once a second: what is told by ages and durations follows it.
import { signal } from "@preact/signals";
import { serviceNow } from "./service-clock";

export const now = signal(serviceNow());

const loaded = new WeakMap<object, number>();
/** When an answer was first asked about, which is about when it came. */
export function loadedAt(answer: object): number {
  const at = loaded.get(answer) ?? serviceNow();
  loaded.set(answer, at);
  return at;
}

setInterval(() => {
  if (document.visibilityState === "visible") now.value = serviceNow();
}, 1_000);
