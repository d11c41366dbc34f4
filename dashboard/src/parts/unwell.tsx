// That a part of the service is in trouble, over every page: a full disk takes nothing from what is shown, but it goes on no more.
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { connection, HEALTH, NODES } from "../api/live";
import { readReadiness, troubleOf } from "../api/readiness";
import { useResource } from "../api/resource";
import type { Readiness } from "../api/shapes";

const PACE_MS = 2_000;

/** As it was last told; undefined until it was. */
export const readiness = signal<Readiness | undefined>(undefined);

export function Unwell() {
  const found = useResource(["readiness"], readReadiness, [HEALTH, NODES], PACE_MS).data.value;
  useEffect(() => {
    readiness.value = found;
  }, [found]);
  const trouble = troubleOf(found);
  if (!trouble || connection.value === "lost") return null;
  return (
    <div class="away" role="alert">
      <strong>The service is in trouble</strong>: {trouble}. Trials that run go on, and what they report is
      kept on their nodes; it goes on by itself once that is mended.
    </div>
  );
}
