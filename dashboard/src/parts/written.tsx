// What somebody writes in an editor or a dialog: there again after a reload, and after signing in again.
import { type ReadonlySignal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { caller } from "../api/session";
import { forgetWritten, keepWritten, keptWritten } from "../state/draft";

export interface Written<Value> {
  /** With every change of what is written. */
  keep(value: Value): void;
  /** It was sent, or given up. */
  forget(): void;
  /** Whether it began with what was kept. */
  isAsLeft: ReadonlySignal<boolean>;
}

/**
 * `name`: of what is written, by who is signed in; with " of ID" at its end it goes with that experiment. `take` is
 * given what was kept of it, once, before anything is written.
 */
export function useWritten<Value>(name: string, take: (kept: Value) => void): Written<Value> {
  const who = caller.value?.name ?? null;
  const writer = useRef<string | null>(null); // null until it is known who is signed in
  const latest = useRef<{ value: Value } | null>(null);
  const isAsLeft = useSignal(false);
  const keep = (value: Value) => {
    latest.current = { value };
    writer.current ??= who;
    if (writer.current !== null) keepWritten(writer.current, name, value);
  };
  useEffect(() => {
    if (who === null) return;
    if (latest.current !== null) return keep(latest.current.value);
    const kept = keptWritten(who, name) as Value | undefined;
    if (kept === undefined) return;
    take(kept);
    isAsLeft.value = true;
  }, [who, name]);
  return {
    keep,
    forget: () => {
      const by = writer.current ?? who;
      latest.current = writer.current = null;
      isAsLeft.value = false;
      if (by !== null) forgetWritten(by, name);
    },
    isAsLeft,
  };
}

/** Where fields begin otherwise than they do. */
export function AsLeft({ of }: { of: Pick<Written<never>, "isAsLeft"> }) {
  if (!of.isAsLeft.value) return null;
  return (
    <p class="muted" role="status">
      This is what you had written here and not sent.
    </p>
  );
}
