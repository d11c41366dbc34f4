// What has just happened, said to screen readers, too: what is done for a few seconds, trouble until it is closed.
import { effect, signal } from "@preact/signals";
import { signedOut } from "../api/client";
import { signIns } from "../api/live";

interface Notice {
  id: number;
  words: string;
  tone: "good" | "bad";
  about: string;
}

const SHOWN_MS = 6_000;
const MOST = 4; // of each tone
const notices = signal<readonly Notice[]>([]);
let next = 0;

/** `about`: what came to this; what was said of that before makes room. */
export function say(words: string, tone: Notice["tone"] = "good", about = words): void {
  const id = ++next;
  const shown = [...notices.value.filter((one) => one.about !== about), { id, words, tone, about }];
  const newest = (wanted: Notice["tone"]) => shown.filter((one) => one.tone === wanted).slice(-MOST);
  const kept = new Set([...newest("good"), ...newest("bad")]);
  notices.value = shown.filter((one) => kept.has(one));
  if (tone === "good") setTimeout(() => forget(id), SHOWN_MS);
}

/** It went well at last, which somebody sees without a word. */
export function settled(about: string): void {
  notices.value = notices.value.filter((notice) => notice.about !== about);
}

function forget(id: number): void {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

// Trouble of one session is nothing for the next one, who may be another, and may have signed in in another tab.
effect(() => {
  signedOut.value;
  signIns.value;
  notices.value = notices.peek().filter((notice) => notice.tone === "good");
});

export function Notices() {
  return (
    <div class="notices" role="status" aria-live="polite">
      {notices.value.map((notice) => (
        <div key={notice.id} class={`notice ${notice.tone}`}>
          <span>{notice.words}</span>
          <button type="button" class="icon" aria-label="Close" onClick={() => forget(notice.id)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}
