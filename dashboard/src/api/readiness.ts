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
