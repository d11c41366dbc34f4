// What has just happened, for a few seconds, and said to screen readers.
import { signal } from "@preact/signals";

interface Notice {
  id: number;
  words: string;
  tone: "good" | "bad";
}

const SHOWN_MS = 6_000;
const MOST = 4;
const notices = signal<Notice[]>([]);
let next = 0;

export function say(words: string, tone: Notice["tone"] = "good"): void {
  const id = ++next;
  notices.value = [...notices.value, { id, words, tone }].slice(-MOST);
  setTimeout(() => forget(id), tone === "bad" ? SHOWN_MS * 2 : SHOWN_MS);
}

function forget(id: number): void {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

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
