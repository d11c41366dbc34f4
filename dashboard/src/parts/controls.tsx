// Small things that pages are made of: badges, switches, states, values to copy and to change in their place.
import { useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { type Problem, UNREACHABLE } from "../api/client";
import { asProblem } from "../api/resource";
import { may, type Operation } from "../api/session";
import { go } from "../state/address";
import { statusWords } from "../state/words";
import { Begun } from "./entered";
import { CopyIcon, PencilIcon } from "./icons";
import { say } from "./notices";

const SHAPES: Record<string, string> = {
  succeeded: "●",
  completed: "●",
  failed: "✕",
  lost: "✕",
  early_stopped: "▼",
  stopping: "▼",
  running: "◌",
  starting: "◌",
  created: "◌",
  paused: "❙❙",
  canceled: "■",
  stopped: "■",
  waiting: "□",
  exited: "·",
};

/** ``trouble``: it is so by nobody's wish, and somebody should look. */
export function Badge({ status, trouble = false }: { status: string; trouble?: boolean }) {
  return (
    <span class={`badge ${status}${trouble ? " trouble" : ""}`}>
      <span aria-hidden="true" class="shape">
        {SHAPES[status] ?? "·"}
      </span>
      {statusWords(status)}
    </span>
  );
}

export function Switch({ label, on, onChange }: { label: string; on: boolean; onChange(on: boolean): void }) {
  return (
    <button type="button" class="switch" aria-pressed={on} title={label} onClick={() => onChange(!on)}>
      {label}
    </button>
  );
}

/** A link of the page itself; a click with a modifier is the browser's. */
export function To({
  to,
  children,
  ...rest
}: { to: string; children: ComponentChildren } & Omit<JSX.IntrinsicElements["a"], "href" | "role"> & {
    role?: "button" | "menuitem";
  }) {
  return (
    <a
      {...rest}
      href={to}
      onClick={(event) => {
        if (
          event.defaultPrevented ||
          event.button !== 0 ||
          event.metaKey ||
          event.ctrlKey ||
          event.shiftKey ||
          event.altKey
        )
          return;
        event.preventDefault();
        go(to);
      }}
    >
      {children}
    </a>
  );
}

export function Empty({
  title,
  children,
  command,
}: {
  title: string;
  children?: ComponentChildren;
  command?: string;
}) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children && <p>{children}</p>}
      {command && <Copyable text={command} />}
    </div>
  );
}

export function Loading({ what }: { what: string }) {
  return (
    <div class="loading" role="status">
      <span class="shimmer" aria-hidden="true" />
      <span class="shimmer short" aria-hidden="true" />
      <span class="unseen">{what} is being read</span>
    </div>
  );
}

export function Trouble({ problem, onAgain }: { problem: Problem; onAgain?: () => void }) {
  if (problem.status === UNREACHABLE)
    return (
      <div class="empty" role="alert">
        <h2>The service does not answer</h2>
        <p>
          This page tries again by itself. Running trials go on without the service; <code>tuner serve</code>{" "}
          starts it again.
        </p>
      </div>
    );
  const title =
    problem.status === 404
      ? "There is no such thing"
      : problem.status === 403
        ? "This token may not do that"
        : problem.title;
  return (
    <div class="empty" role="alert">
      <h2>{title}</h2>
      <p>{problem.detail}</p>
      {onAgain && (
        <button type="button" onClick={onAgain}>
          Try again
        </button>
      )}{" "}
      {problem.status === 404 && (
        <To to="/" class="button">
          To the experiments
        </To>
      )}
    </div>
  );
}

const COPYING = "copy";

export async function copy(text: string, what = "Copied"): Promise<void> {
  try {
    // A page that was opened by plain http from elsewhere has no clipboard.
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else if (!copyMarked(text)) throw new Error("not copied");
    say(what, "good", COPYING);
  } catch {
    say("The browser did not let the page copy; the text can be marked by hand", "bad", COPYING);
  }
}

function copyMarked(text: string): boolean {
  const field = document.createElement("textarea");
  field.value = text;
  (document.querySelector("dialog[open]") ?? document.body).append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  return done;
}

export function Copyable({ text, label }: { text: string; label?: string }) {
  return (
    <div class="copyable">
      <code>{text}</code>
      <button
        type="button"
        class="icon"
        title="Copy"
        aria-label={`Copy ${label ?? text.slice(0, 60)}`}
        onClick={() => void copy(text)}
      >
        <CopyIcon />
      </button>
    </div>
  );
}

interface EditProps {
  /** What saving does: who may not do that is shown the value alone. */
  by: Operation;
  label: string;
  value: string;
  shown: ComponentChildren;
  type?: "number" | "text";
  hint?: string;
  wide?: boolean;
  /** A Problem that it throws stands beside the field. */
  onSave(value: string): Promise<void>;
}

/** A value that is changed where it stands: Enter saves, Escape leaves it as it was. */
export function EditInPlace({ by, label, value, shown, type = "text", hint, wide, onSave }: EditProps) {
  const editing = useSignal(false);
  const fault = useSignal("");
  const busy = useSignal(false);
  const field = useRef<HTMLInputElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const begun = useRef(new Begun(value));
  useEffect(() => {
    if (editing.value) field.current?.select();
  }, [editing.value]);
  const close = () => {
    editing.value = false;
    fault.value = "";
    requestAnimationFrame(() => button.current?.focus());
  };
  const keep = async () => {
    const entered = field.current?.value.trim() ?? "";
    if (entered === value) return close();
    busy.value = true;
    try {
      begun.current.guard(value);
      await onSave(entered);
      close();
    } catch (error) {
      fault.value = faultWords(asProblem(error));
    } finally {
      busy.value = false;
    }
  };
  if (!may(by)) return <>{shown}</>;
  if (!editing.value)
    return (
      <button
        type="button"
        class="edit"
        ref={button}
        title={`Change ${label}`}
        onClick={() => {
          begun.current = new Begun(value);
          editing.value = true;
        }}
      >
        <span class="unseen">{label}: </span>
        {shown}
        <span class="unseen">, change</span>
        <PencilIcon />
      </button>
    );
  return (
    <form
      class={wide ? "edit-form wide" : "edit-form"}
      onSubmit={(event) => {
        event.preventDefault();
        void keep();
      }}
    >
      <input
        ref={field}
        aria-label={label}
        inputMode={type === "number" ? "numeric" : "text"}
        defaultValue={value}
        placeholder={hint ?? ""}
        disabled={busy.value}
        aria-invalid={fault.value !== ""}
        onKeyDown={(event) => {
          if (event.key === "Escape") {
            event.stopPropagation();
            close();
          }
        }}
      />
      <button type="submit" class="primary small" disabled={busy.value}>
        Save
      </button>
      <button type="button" class="small" onClick={close}>
        Cancel
      </button>
      {fault.value && (
        <span class="fault" role="alert">
          {fault.value}
        </span>
      )}
    </form>
  );
}

export function faultWords(problem: Problem): string {
  if (problem.faults.length > 0)
    return problem.faults
      .map((fault) => `${fault.pointer.split("/").slice(1).join(" ")} ${fault.detail}`.trim())
      .join("; ");
  return problem.detail;
}
