// The session of this browser: a cookie that no script can read.
import { effect, signal } from "@preact/signals";
import { ACCESS, ROLES } from "./access";
import { ask, read, signedOut } from "./client";
import { signedInNow, signedOutNow } from "./live";
import type { Caller } from "./shapes";

/** Raises a Problem where the code or the token is not good. */
export async function signIn(given: { code: string } | { token: string }): Promise<void> {
  await ask("POST", "session", { body: given });
  signedInNow();
}

export async function signOut(): Promise<void> {
  await ask("DELETE", "session");
  caller.value = null;
  signedOutNow(true);
}

/** Who is signed in; null until it is known. */
export const caller = signal<Caller | null>(null);
// The next one who signs in may be another.
effect(() => {
  if (signedOut.value) caller.value = null;
});

export async function findCaller(): Promise<void> {
  try {
    caller.value = await read<Caller>("session");
  } catch {
    caller.value = null; // the page that asks for more says why
  }
}

/** What not everybody may do who may read. */
export type Operation = keyof typeof ACCESS;

/** Whether a role may do it, by the rule of the service, which refuses everything else. */
export function roleMay(role: string, operation: Operation): boolean {
  const roles: readonly string[] = ROLES[ACCESS[operation]];
  return roles.includes(role);
}

/** Whether the page offers it to who is signed in. Until it is known who that is, it does: the service decides. */
export function may(operation: Operation): boolean {
  const who = caller.value;
  return who === null || roleMay(who.role, operation);
}
