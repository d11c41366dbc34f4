// A question before what cannot be taken back, and forms that lie over the page.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

export interface Question {
  title: string;
  body: ComponentChildren;
  yes: string;
  danger?: boolean;
  onYes(): Promise<void>;
}

const question = signal<Question | null>(null);

export function ask(asked: Question): void {
  question.value = asked;
}

export function Questions() {
  const asked = question.value;
  if (!asked) return null;
  const close = () => {
    question.value = null;
  };
  return (
    <Dialog title={asked.title} onClose={close}>
      <div class="dialog-body">{asked.body}</div>
      <div class="dialog-actions">
        <button type="button" onClick={close}>
          Cancel
        </button>
        <button
          type="button"
          class={asked.danger ? "danger" : "primary"}
          onClick={() => {
            close();
            void asked.onYes();
          }}
        >
          {asked.yes}
        </button>
      </div>
    </Dialog>
  );
}

export function Dialog({
  title,
  onClose,
  children,
}: {
  title: string;
  onClose(): void;
  children: ComponentChildren;
}) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    dialog?.showModal();
    return () => {
      dialog?.close();
      // It is out of the page by now, and the browser knows no more where one was.
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <h2>{title}</h2>
      {children}
    </dialog>
  );
}
