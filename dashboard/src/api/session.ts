// The session of this browser: a cookie that no script can read.
import { ask, read } from "./client";
import { signedInNow } from "./live";

/** Raises a Problem where the code or the token is not good. */
export async function signIn(given: { code: string } | { token: string }): Promise<void> {
  await ask("POST", "session", { body: given });
  signedInNow();
}

export async function signOut(): Promise<void> {
  await ask("DELETE", "session");
}

export interface Session {
  role: "admin" | "read-only";
  session: { id: string; expires_at: string } | null;
}

export function whoIsThere(signal?: AbortSignal): Promise<Session> {
  return read<Session>("session", signal);
}
