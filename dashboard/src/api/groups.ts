// Changes of quota groups. A group is written as a whole, so it is read just before, and not written where it has
// become another one meanwhile.
import { ask, Problem } from "./client";
import type { QuotaGroup } from "./shapes";

const TRIES = 5; // what its trials hold is a part of what is compared, and changes as they come and go

/** Raises a Problem where there is a group of that name already: it keeps what it has. */
export async function makeGroup(name: string): Promise<void> {
  await ask("PUT", path(name), { body: { gpus: 1, cpus: null, memory: null, borrows: true }, isNew: true });
}

/** Changes what is given, and leaves everything else as the service has it now. */
export async function changeGroup(
  name: string,
  change: Partial<Pick<QuotaGroup, "gpus" | "borrows">>,
): Promise<void> {
  for (let tries = 1; ; tries++) {
    const { body: now, etag } = await ask<QuotaGroup>("GET", path(name));
    const quotas = { gpus: now.gpus, cpus: now.cpus, memory: now.memory_bytes, borrows: now.borrows };
    try {
      await ask("PUT", path(name), { body: { ...quotas, ...change }, ifMatch: etag });
      return;
    } catch (error) {
      if (!(error instanceof Problem && error.status === 412) || tries === TRIES) throw error;
    }
  }
}

function path(name: string): string {
  return `quota-groups/${encodeURIComponent(name)}`;
}
