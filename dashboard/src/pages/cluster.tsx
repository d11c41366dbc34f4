// Nodes, devices, who holds what, quota groups, and what waits.
import { useSignal } from "@preact/signals";
import { read, readAll, ask as request } from "../api/client";
import { touch } from "../api/live";
import { useResource } from "../api/resource";
import { type Agent, type Device, type Experiment, ended, type QuotaGroup } from "../api/shapes";
import { act } from "../parts/actions";
import { Badge, EditInPlace, Empty, Loading, To, Trouble } from "../parts/controls";
import { ask } from "../parts/dialog";
import { experimentPath, trialPath } from "../state/address";
import { bytes, count, number } from "../state/format";

export function ClusterPage() {
  const found = useResource(
    ["cluster"],
    async (signal) => {
      const [agents, devices, groups, experiments] = await Promise.all([
        read<{ items: Agent[] }>("agents", signal),
        read<{ items: Device[] }>("devices", signal),
        read<{ items: QuotaGroup[] }>("quota-groups", signal),
        readAll<Experiment>(
          "experiments?limit=1000&status=running&status=stopping&status=paused",
          1_000,
          signal,
        ),
      ]);
      return { agents: agents.items, devices: devices.items, groups: groups.items, experiments };
    },
    ["*", "cluster"],
    1_000,
  );
  const all = found.data.value;
  if (!all)
    return found.problem.value ? (
      <Trouble problem={found.problem.value} onAgain={found.reload} />
    ) : (
      <Loading what="The cluster" />
    );
  const names = new Map(all.experiments.map((one) => [one.id, one.name]));
  return (
    <>
      <div class="page-head">
        <h1>Cluster</h1>
      </div>
      <Nodes agents={all.agents} devices={all.devices} names={names} />
      <Groups groups={all.groups} names={names} />
      <Waiting experiments={all.experiments} />
    </>
  );
}

function Nodes({
  agents,
  devices,
  names,
}: {
  agents: Agent[];
  devices: Device[];
  names: Map<string, string>;
}) {
  if (agents.length === 0)
    return (
      <Empty title="No node is connected" command="tuner serve">
        The agent of this machine starts with the first trial and ends when nothing is left to run. Nothing is
        wrong while no trial runs.
      </Empty>
    );
  return (
    <section aria-labelledby="nodes">
      <h2 id="nodes">{count(agents.length, "node")}</h2>
      {agents.map((agent) => {
        const own = devices.filter((device) => device.agent === agent.id);
        return (
          <article key={agent.id} class="node">
            <h3>
              {agent.host} <span class="muted">{agent.id}</span>
            </h3>
            <p>
              {count(agent.cpus, "core")} · {bytes(agent.memory_bytes)} of memory · agent process {agent.pid}
            </p>
            {own.length === 0 ? (
              <p class="muted">It has no GPU.</p>
            ) : (
              <div class="devices">
                {own.map((device) => (
                  <DeviceCard key={device.uuid} device={device} names={names} />
                ))}
              </div>
            )}
          </article>
        );
      })}
    </section>
  );
}

const STATES: Record<string, string> = {
  free: "free",
  held: "held by trials",
  occupied: "used by something else",
  lost: "failed",
};

function DeviceCard({ device, names }: { device: Device; names: Map<string, string> }) {
  return (
    <div class={`device ${device.state}`}>
      <strong class="clip" title={device.uuid}>
        {device.name}
      </strong>
      <div class="muted">{bytes(device.memory_bytes)}</div>
      <div>
        <span class={device.state === "lost" ? "bad-text" : ""}>{STATES[device.state] ?? device.state}</span>
      </div>
      {device.trials.length > 0 && (
        <meter
          min={0}
          max={1}
          value={Math.min(1, device.share)}
          aria-label={`${Math.round(device.share * 100)} % held`}
        />
      )}
      <ul class="plain">
        {device.trials.map((one) => {
          const [id, trial] = [
            one.id.slice(0, one.id.lastIndexOf("/")),
            Number(one.id.slice(one.id.lastIndexOf("/") + 1)),
          ];
          return (
            <li key={one.id}>
              <To to={trialPath(id, trial)} class="clip">
                {names.get(id) ?? id}, trial {trial}
              </To>
              {one.share < 1 && <span class="muted"> {number(one.share)}</span>}
            </li>
          );
        })}
      </ul>
    </div>
  );
}

function Groups({ groups, names }: { groups: QuotaGroup[]; names: Map<string, string> }) {
  const name = useSignal("");
  const put = async (group: string, gpus: number | null, borrows: boolean) => {
    await request("PUT", `quota-groups/${encodeURIComponent(group)}`, { body: { gpus, borrows } });
    touch("cluster");
  };
  const remove = (group: string) =>
    ask({
      title: `Remove the group ${group}?`,
      body: <p>Its share goes back to all.</p>,
      yes: "Remove",
      danger: true,
      onYes: async () => {
        await act(() => request("DELETE", `quota-groups/${encodeURIComponent(group)}`), "Removed", "cluster");
      },
    });
  return (
    <section aria-labelledby="groups">
      <h2 id="groups">Quota groups</h2>
      <div class="scroll-x">
        <table class="list">
          <thead>
            <tr>
              <th scope="col">Group</th>
              <th scope="col" class="numeric">
                GPUs held
              </th>
              <th scope="col" class="numeric">
                Quota
              </th>
              <th scope="col">Borrows what is free</th>
              <th scope="col">Experiments</th>
              <th scope="col">
                <span class="unseen">actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {groups.map((group) => (
              <tr key={group.name}>
                <th scope="row">{group.name}</th>
                <td class="numeric">{number(group.used)}</td>
                <td class="numeric">
                  <EditInPlace
                    label={`GPUs of ${group.name}`}
                    type="number"
                    value={String(group.gpus ?? "")}
                    shown={group.gpus === null ? "no bound" : number(group.gpus)}
                    onSave={(text) => put(group.name, text === "" ? null : Number(text), group.borrows)}
                  />
                </td>
                <td>
                  <input
                    type="checkbox"
                    aria-label={`${group.name} borrows`}
                    checked={group.borrows}
                    onChange={(event) =>
                      void act(
                        () => put(group.name, group.gpus, event.currentTarget.checked),
                        "Changed",
                        "cluster",
                      )
                    }
                  />
                </td>
                <td>
                  {group.experiments.slice(0, 8).map((id) => (
                    <To key={id} to={experimentPath(id)} class="chip">
                      {names.get(id) ?? id}
                    </To>
                  ))}
                  {group.experiments.length === 0 && <span class="muted">none</span>}
                </td>
                <td>
                  {group.name !== "default" && (
                    <button type="button" class="quiet" onClick={() => remove(group.name)}>
                      Remove
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <form
        class="row"
        onSubmit={(event) => {
          event.preventDefault();
          const made = name.value.trim();
          void act(() => put(made, 1, true), `The group ${made} has a quota of 1 GPU`, "cluster").then(
            (done) => {
              if (done) name.value = "";
            },
          );
        }}
      >
        <input
          aria-label="name of a new group"
          placeholder="new group"
          value={name.value}
          onInput={(event) => {
            name.value = event.currentTarget.value;
          }}
        />
        <button type="submit" disabled={!name.value.trim()}>
          Add a group
        </button>
      </form>
    </section>
  );
}

function Waiting({ experiments }: { experiments: Experiment[] }) {
  const waiting = experiments
    .filter((one) => !ended(one.status) && (one.counts.waiting ?? 0) > 0)
    .sort((one, other) => other.priority - one.priority);
  return (
    <section aria-labelledby="waiting">
      <h2 id="waiting">What waits</h2>
      {waiting.length === 0 ? (
        <p class="muted">No trial waits for a place.</p>
      ) : (
        <ul class="plain">
          {waiting.map((one) => (
            <li key={one.id}>
              <To to={experimentPath(one.id)}>{one.name}</To> <Badge status={one.status} />{" "}
              {count(one.counts.waiting ?? 0, "trial")}{" "}
              {one.priority !== 0 && <span class="muted">priority {one.priority}</span>}
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
