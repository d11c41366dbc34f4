// The time, once a second: what is told by ages and durations follows it.
import { signal } from "@preact/signals";

export const now = signal(Date.now());
setInterval(() => {
  if (document.visibilityState === "visible") now.value = Date.now();
}, 1_000);
