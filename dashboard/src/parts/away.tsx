// That nobody hears from some of the trials of an experiment: their node is not connected.

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { read } from "../api/client";
import { NODES } from "../api/live";
import { useResource } from "../api/resource";
import type { Agent } from "../api/shapes";
import { count } from "../state/format";
import { To } from "./controls";

const PACE_MS = 2_000;
const PATIENCE_MS = 8_000; // agents that come back sooner, as after a restart of the service, were no trouble for anybody
const MOST_NAMED = 3;

/** Of one experiment: how many of its trials are on which nodes that are not connected; empty where none is. */
export function awayWords(agents: readonly Agent[], id: string): string {
  const found = agents.flatMap((agent) => {
    const trials = agent.trials.filter((one) => one.startsWith(`${id}/`)).length;
    return agent.state === "away" && trials > 0 ? [`${count(trials, "trial")} on ${agent.id}`] : [];
  });
  const more = found.length > MOST_NAMED ? ` and ${count(found.length - MOST_NAMED, "further node")}` : "";
  return found.slice(0, MOST_NAMED).join(", ") + more;
}

export function AwayNodes({ id }: { id: string }) {
  const agents = useResource(
    [id, "nodes"],
    (signal) => read<{ items: Agent[] }>("agents", signal),
    [NODES],
    PACE_MS,
  ).data.value;
  const words = agents ? awayWords(agents.items, id) : "";
  const isAway = words !== "";
  const lasts = useSignal(false);
  useEffect(() => {
    lasts.value = false;
    if (!isAway) return;
    const timer = setTimeout(() => {
      lasts.value = true;
    }, PATIENCE_MS);
    return () => clearTimeout(timer);
  }, [isAway, lasts]);
  if (!isAway || !lasts.value) return null;
  return (
    <p class="banner" role="status">
      <span>
        Nobody hears from {words}: the node is not connected. They run on there, as far as that can be known.
      </span>
      <To to="/cluster" class="button">
        What to do
      </To>
    </p>
  );
}
