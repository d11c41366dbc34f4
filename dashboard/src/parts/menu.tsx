// A button that opens a list of actions; closed by Escape, by a click elsewhere, by the action itself. Who opens it by a
// key is at its first action, and back at the button after it.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

const EDGE = 8; // pixels of the screen's left edge

/** It hangs from the right end of its button, which may be too far left for that. */
function intoScreen(list: HTMLElement | null): void {
  const left = list?.getBoundingClientRect().left ?? EDGE;
  if (list && left < EDGE) list.style.right = `${left - EDGE}px`;
}

export function Menu({
  label,
  icon,
  children,
  text,
}: {
  label: string;
  icon: ComponentChildren;
  text?: string;
  children: ComponentChildren;
}) {
  const open = useSignal(false);
  const box = useRef<HTMLDivElement>(null);
  const byKey = useRef(false);
  useEffect(() => {
    const outside = (event: Event) => {
      if (open.value && !box.current?.contains(event.target as Node)) open.value = false;
    };
    document.addEventListener("pointerdown", outside);
    return () => document.removeEventListener("pointerdown", outside);
  }, [open]);
  const opened = (list: HTMLElement | null) => {
    intoScreen(list);
    if (list && byKey.current) list.querySelector<HTMLElement>("[role=menuitem]")?.focus();
    if (list) byKey.current = false;
  };
  const items = () => [...(box.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
  const key = (event: KeyboardEvent) => {
    if (event.key === "Escape" && open.value) {
      open.value = false;
      box.current?.querySelector("button")?.focus();
      event.stopPropagation();
    }
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step !== 0 && open.value) {
      const found = items();
      found[
        (found.indexOf(document.activeElement as HTMLElement) + step + found.length) % found.length
      ]?.focus();
      event.preventDefault();
    }
  };
  return (
    <div class="menu" ref={box} onKeyDown={key}>
      <button
        type="button"
        class={text ? "" : "icon"}
        aria-label={text ? undefined : label}
        title={label}
        aria-haspopup="menu"
        aria-expanded={open.value}
        onClick={(event) => {
          byKey.current = event.detail === 0; // no click of a pointer
          open.value = !open.value;
        }}
      >
        {text && `${text} `}
        <span aria-hidden="true">{icon}</span>
      </button>
      {open.value && (
        <div
          class="menu-list"
          ref={opened}
          role="menu"
          aria-label={label}
          tabIndex={-1}
          onClick={(event) => {
            open.value = false;
            if (event.detail === 0) box.current?.querySelector("button")?.focus();
          }}
        >
          {children}
        </div>
      )}
    </div>
  );
}
