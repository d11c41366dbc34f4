// What an attempt used over time, followed while it runs.
import { useEffect, useRef } from "preact/hooks";
import { read, trialUrl } from "../api/client";
import { useResource } from "../api/resource";
import type { Resources as Answer } from "../api/shapes";
import { Loading } from "../parts/controls";
import { ResourcePlot } from "../plots/resources";

const LOOK_MS = 2_000;

interface Props {
  id: string;
  number: number;
  attempt: number;
  /** Of a trial of several nodes, from 0. */
  node: number;
  runs: boolean;
}

export function Resources({ id, number, attempt, node, runs }: Props) {
  const found = useResource(
    [id, number, attempt, node, "resources"],
    (signal) =>
      read<Answer>(
        trialUrl(id, number, `/resources?attempt=${attempt}${node ? `&node=${node}` : ""}`),
        signal,
      ),
    [],
  );
  const ran = useRef(runs);
  useEffect(() => {
    if (ran.current && !runs) found.reload(); // what came last
    ran.current = runs;
    if (!runs) return;
    const timer = setInterval(() => document.hidden || found.reload(), LOOK_MS);
    return () => clearInterval(timer);
  }, [found, runs]);
  const samples = found.data.value?.samples;
  const file = `${id}-${number}-${attempt}${node ? `-node${node}` : ""}`;
  return (
    <section aria-labelledby="resources">
      <h2 id="resources">Resources over time</h2>
      {samples === undefined ? (
        found.problem.value ? (
          <p class="note">{found.problem.value.detail}</p>
        ) : (
          <Loading what="What it used" />
        )
      ) : samples.length === 0 ? (
        <p class="muted">
          {runs
            ? "The first numbers come when it has run for a second."
            : "Nothing was measured: it is looked at after its first second."}
        </p>
      ) : (
        <div class="plots">
          <ResourcePlot samples={samples} of="memory" file={file} />
          <ResourcePlot samples={samples} of="cores" file={file} />
        </div>
      )}
    </section>
  );
}
