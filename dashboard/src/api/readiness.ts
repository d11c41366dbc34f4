// Whether the service is well: of which of its parts it says that they are in trouble, and what that is.
import { Problem, read } from "./client";
import type { Readiness } from "./shapes";

/** It is told with 503 where a part is in trouble, and is an answer then as well. */
export async function readReadiness(signal?: AbortSignal): Promise<Readiness> {
  try {
    return await read<Readiness>("/readyz", signal);
  } catch (error) {
    if (error instanceof Problem && typeof (error.told as Readiness | null)?.parts === "object")
      return error.told as Readiness;
    throw error;
  }
}

/** In words; empty of a service that is well. A standby is none that works: who is active is asked for by the page itself. */
export function troubleOf(readiness: Readiness | undefined): string {
  if (readiness?.role !== "active") return "";
  return Object.entries(readiness.parts)
    .filter(([, state]) => state !== "ok")
    .map(([part, state]) => `${part}: ${state}`)
    .join("; ");
}

export interface ServiceWords {
  words: string;
  tone: "good-text" | "warn-text" | "bad-text";
}

/** How it is, and in which colour: a trouble before what will be one unless somebody acts. */
export function serviceWords(readiness: Readiness | undefined): ServiceWords {
  if (readiness === undefined) return { words: "…", tone: "good-text" };
  if (readiness.role === "standby") return { words: "a standby", tone: "good-text" };
  const trouble = troubleOf(readiness);
  if (trouble) return { words: trouble, tone: "bad-text" };
  // A service of an earlier version, to which an open page may still speak, warns of nothing.
  const warnings = Object.values(readiness.warnings ?? {});
  return warnings.length > 0
    ? { words: warnings.join("; "), tone: "warn-text" }
    : { words: "healthy", tone: "good-text" };
}
