// Nodes, what provides them, devices and who holds them, quota groups, what waits, and who may come in.
import { experimentUrl, read, readAll } from "../api/client";
import { useResource } from "../api/resource";
import { caller, may } from "../api/session";
import {
  type Agent,
  type Device,
  type Executor,
  type Experiment,
  type ExperimentDetail,
  ended,
  type QuotaGroup,
} from "../api/shapes";
import { Awaited, Stale } from "../parts/awaited";
import { Badge, To } from "../parts/controls";
import { experimentPath } from "../state/address";
import { count } from "../state/format";
import { isTroubled } from "../state/words";
import { Access } from "./cluster-access";
import { Groups } from "./cluster-groups";
import { Executors, Nodes } from "./cluster-nodes";

export function ClusterPage() {
  const found = useResource(
    ["cluster"],
    async (signal) => {
      const [agents, devices, executors, groups, experiments] = await Promise.all([
        read<{ items: Agent[] }>("agents", signal),
        read<{ items: Device[] }>("devices", signal),
        read<{ items: Executor[] }>("executors", signal),
        read<{ items: QuotaGroup[] }>("quota-groups", signal),
        readAll<Experiment>(
          "experiments?limit=1000&status=running&status=stopping&status=paused",
          1_000,
          signal,
        ),
      ]);
      return {
        agents: agents.items,
        devices: devices.items,
        executors: executors.items,
        groups: groups.items,
        experiments,
      };
    },
    ["*", "cluster"],
    1_000,
  );
  const all = found.data.value;
  document.title = "Cluster · Tuner";
  if (!all) return <Awaited of={found} what="The cluster" />;
  const names = new Map(all.experiments.map((one) => [one.id, one.name]));
  return (
    <>
      <div class="page-head">
        <h1>Cluster</h1>
      </div>
      <Stale of={found} what="The cluster" />
      <Nodes agents={all.agents} devices={all.devices} names={names} />
      <Executors executors={all.executors} />
      <Waiting experiments={all.experiments} />
      <Groups groups={all.groups} names={names} />
      {!may("set_quota_group") && (
        <p class="note">Admins drain and remove nodes, change quota groups, and make tokens here.</p>
      )}
      {caller.value !== null && may("list_tokens") && <Access />}
    </>
  );
}

const MOST_REASONS = 20; // experiments of which it is asked what their trials wait for

function Waiting({ experiments }: { experiments: Experiment[] }) {
  const waiting = experiments
    .filter((one) => !ended(one.status) && (one.counts.waiting ?? 0) > 0)
    .sort((one, other) => other.priority - one.priority);
  const asked = waiting.slice(0, MOST_REASONS).map((one) => one.id);
  const details = useResource(
    ["waiting", asked.join(" ")],
    (signal) => Promise.all(asked.map((id) => read<ExperimentDetail>(experimentUrl(id), signal))),
    ["*", "cluster"],
    2_000,
  );
  const known = new Map((details.data.value ?? []).map((one) => [one.id, one]));
  return (
    <section aria-labelledby="waiting">
      <h2 id="waiting">What waits</h2>
      {waiting.length === 0 ? (
        <p class="muted">No trial waits for a place.</p>
      ) : (
        <div class="scroll-x">
          <table class="list">
            <thead>
              <tr>
                <th scope="col">Experiment</th>
                <th scope="col">Status</th>
                <th scope="col" class="numeric">
                  Waiting
                </th>
                <th scope="col" class="numeric">
                  Priority
                </th>
                <th scope="col">For</th>
              </tr>
            </thead>
            <tbody>
              {waiting.map((one) => (
                <tr key={one.id}>
                  <th scope="row" class="name">
                    <To to={experimentPath(one.id)} class="clip" title={one.name}>
                      {one.name}
                    </To>
                  </th>
                  <td>
                    <Badge status={one.status} trouble={isTroubled(one)} />
                  </td>
                  <td class="numeric">{count(one.counts.waiting ?? 0, "trial")}</td>
                  <td class="numeric">{one.priority}</td>
                  <td>{waitsFor(one, known.get(one.id))}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function waitsFor(one: Experiment, detail: ExperimentDetail | undefined): string {
  if (one.status === "paused") return "the experiment is paused";
  if (!detail) return "";
  return detail.no_node ? `a node: ${detail.no_node}` : (detail.waits_for ?? "its turn");
}
