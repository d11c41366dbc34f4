// The session of this browser: a cookie that no script can read.
import { signal } from "@preact/signals";
import { ask, read, signedOut } from "./client";
import { signedInNow } from "./live";
import type { Caller } from "./shapes";

/** Raises a Problem where the code or the token is not good. */
export async function signIn(given: { code: string } | { token: string }): Promise<void> {
  await ask("POST", "session", { body: given });
  signedInNow();
}

export async function signOut(): Promise<void> {
  await ask("DELETE", "session");
  caller.value = null;
  signedOut.value = true;
}

/** Who is signed in; null until it is known. */
export const caller = signal<Caller | null>(null);

export async function findCaller(): Promise<void> {
  try {
    caller.value = await read<Caller>("session");
  } catch {
    caller.value = null; // the page that asks for more says why
  }
}
