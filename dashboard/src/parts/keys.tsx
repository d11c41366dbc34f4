// The keys of the page: j and k walk the rows, / goes to the filter, ? says what there is.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { go } from "../state/address";
import { Dialog } from "./dialog";

export const helpShown = signal(false);

const KEYS: readonly [string, string][] = [
  ["j  k", "to the next row, the one before"],
  ["Enter", "open the row"],
  ["/", "to the filter"],
  ["g e", "experiments"],
  ["g c", "cluster"],
  ["g n", "new experiment"],
  ["Escape", "out of a field, close what lies above"],
  ["?", "this list"],
];

let before = "";

function typing(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

function press(event: KeyboardEvent): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && typing(event.target)) (event.target as HTMLElement).blur();
  if (typing(event.target) || document.querySelector("dialog[open]")) return;
  const places: Record<string, string> = { e: "/", c: "/cluster", n: "/new" };
  if (before === "g" && places[event.key]) go(places[event.key]);
  else if (event.key === "?") helpShown.value = true;
  else if (event.key === "/") {
    const filter = document.querySelector<HTMLInputElement>("[data-filter]");
    if (!filter) return;
    filter.focus();
    event.preventDefault();
  } else if (event.key === "j" || event.key === "k") walk(event.key === "j" ? 1 : -1);
  before = event.key;
}

/** Rows that a key can walk say so themselves. */
function walk(step: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>("[data-row]")];
  if (rows.length === 0) return;
  const there = rows.findIndex(
    (row) => row === document.activeElement || row.contains(document.activeElement),
  );
  const next = rows[Math.max(0, Math.min(rows.length - 1, there + step))];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

export function Keys() {
  useEffect(() => {
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  if (!helpShown.value) return null;
  return (
    <Dialog
      title="Keys"
      onClose={() => {
        helpShown.value = false;
      }}
    >
      <dl class="keys">
        {KEYS.map(([key, meaning]) => (
          <div key={key}>
            <dt>
              {key.split(/\s+/).map((one) => (
                <kbd key={one}>{one}</kbd>
              ))}
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <div class="dialog-actions">
        <button
          type="button"
          onClick={() => {
            helpShown.value = false;
          }}
        >
          Close
        </button>
      </div>
    </Dialog>
  );
}
