// The nodes on which trials run, their devices, and the executors that provide nodes.
import { ask as request, send } from "../api/client";
import { may } from "../api/session";
import type { Agent, Device, Executor } from "../api/shapes";
import { act } from "../parts/actions";
import { Empty, To } from "../parts/controls";
import { ask } from "../parts/dialog";
import { trialPath } from "../state/address";
import { ago, bytes, clock, count, duration, moment, number } from "../state/format";
import { now } from "../state/now";

type Names = ReadonlyMap<string, string>;

const SKEW_S = 1; // from here on a node's clock is worth a word
const MOST_TRIALS = 24; // of a node, before the others are counted

/** What a node is, in a word, and how it is marked: good, waiting or bad. */
const NODE_STATES: Record<string, [string, string]> = {
  ready: ["ready", "succeeded"],
  in_trouble: ["in trouble", "failed"],
  draining: ["draining", "stopping"],
  drained: ["drained", "stopped"],
  away: ["away", "lost"],
  pending: ["asked for", "waiting"],
  starting: ["starting", "starting"],
  ending: ["ending", "stopping"],
};

export function NodeBadge({ state }: { state: string }) {
  const [words, kind] = NODE_STATES[state] ?? [state.replaceAll("_", " "), ""];
  return <span class={`badge ${kind}`}>{words}</span>;
}

interface NodesProps {
  agents: Agent[];
  devices: Device[];
  names: Names;
}

export function Nodes({ agents, devices, names }: NodesProps) {
  if (agents.length === 0)
    return (
      <Empty title="No node is connected" command="tuner agent join URL --token-file FILE">
        The agent of this machine starts with the first trial and ends when nothing is left to run; nothing is
        wrong while no trial runs. Another machine joins by this command:
      </Empty>
    );
  return (
    <section aria-labelledby="nodes">
      <h2 id="nodes">{nodesWords(agents)}</h2>
      {agents.map((agent) => (
        <Node
          key={agent.id}
          agent={agent}
          devices={devices.filter((device) => device.agent === agent.id)}
          names={names}
        />
      ))}
    </section>
  );
}

/** How many there are, and how many of them are not connected. */
export function nodesWords(agents: readonly Agent[]): string {
  const away = agents.filter((agent) => agent.state === "away").length;
  return count(agents.length, "node") + (away > 0 ? `, ${number(away)} away` : "");
}

function Node({ agent, devices, names }: { agent: Agent; devices: Device[]; names: Names }) {
  const labels = Object.entries(agent.labels);
  return (
    <article class="node" aria-label={`node ${agent.id}`}>
      <div class="row">
        <h3>{agent.id}</h3>
        <NodeBadge state={agent.state} />
        <span class="muted">{agent.host}</span>
        <div class="grow" />
        <NodeActions agent={agent} />
      </div>
      {agent.message && <p class={agent.state === "ready" ? "note" : "warn-text"}>{agent.message}</p>}
      {agent.state !== "away" && <NodeFacts agent={agent} devices={devices} />}
      {Math.abs(agent.clock_ahead_s) >= SKEW_S && (
        <p class="warn-text">
          Its clock is {duration(Math.abs(agent.clock_ahead_s))}{" "}
          {agent.clock_ahead_s > 0 ? "ahead of" : "behind"} the service's.
        </p>
      )}
      {labels.length > 0 && (
        <p class="tags">
          {labels.map(([name, value]) => (
            <span key={name} class="tag" title={`${name}=${value}`}>
              {name}={value}
            </span>
          ))}
        </p>
      )}
      {agent.notes.map((note) => (
        <p key={note} class="note">
          {note}
        </p>
      ))}
      {devices.length > 0 && (
        <div class="devices">
          {devices.map((device) => (
            <DeviceCard key={device.uuid} device={device} names={names} />
          ))}
        </div>
      )}
      <Trials of={agent.trials} names={names} />
    </article>
  );
}

/** What an agent says of its machine. Of one that is not connected only its trials are known. */
function NodeFacts({ agent, devices }: { agent: Agent; devices: Device[] }) {
  const connected = moment(agent.connected_at);
  return (
    <p class="node-facts">
      <span>{count(agent.cpus, "core")}</span>
      <span>{bytes(agent.memory_bytes)} of memory</span>
      {agent.free_bytes !== null && <span>{bytes(agent.free_bytes)} free on its disk</span>}
      <span>{devices.length === 0 ? "no GPU" : count(devices.length, "device")}</span>
      <span title={clock(connected)}>
        {agent.joined ? "joined" : "of the service"} {ago(connected, now.value)}
      </span>
      <span title={`process ${agent.pid}`}>
        {agent.user}, Python {agent.python}
      </span>
    </p>
  );
}

function Trials({ of, names }: { of: readonly string[]; names: Names }) {
  if (of.length === 0) return <p class="muted">No trial runs there.</p>;
  return (
    <div>
      {of.slice(0, MOST_TRIALS).map((one) => (
        <TrialChip key={one} id={one} names={names} />
      ))}
      {of.length > MOST_TRIALS && <span class="muted">and {of.length - MOST_TRIALS} more</span>}
    </div>
  );
}

/** `8f3k2/12`: the experiment's name and the number. */
function TrialChip({ id, names }: { id: string; names: Names }) {
  const [experiment, trial] = partsOf(id);
  return (
    <To to={trialPath(experiment, trial)} class="chip" title={names.get(experiment) ?? experiment}>
      <span class="clip">{names.get(experiment) ?? experiment}</span> #{trial}
    </To>
  );
}

function partsOf(id: string): [string, number] {
  const cut = id.lastIndexOf("/");
  return [id.slice(0, cut), Number(id.slice(cut + 1))];
}

function NodeActions({ agent }: { agent: Agent }) {
  const path = `agents/${encodeURIComponent(agent.id)}`;
  const isDraining = agent.state === "draining" || agent.state === "drained";
  const drain = () =>
    ask({
      title: `Drain ${agent.id}?`,
      body: (
        <p>
          Nothing more is started there. Its trials save, leave, and go on elsewhere; it costs them no
          attempt.
        </p>
      ),
      yes: "Drain",
      onYes: async () => {
        await act(() => send(`${path}/drain`), `${agent.id} is being drained`, "cluster");
      },
    });
  const remove = () =>
    ask({
      title: `Remove ${agent.id}?`,
      danger: true,
      yes: "Remove",
      body: (
        <p>
          It is not waited for any more.{" "}
          {agent.trials.length > 0 &&
            `What ran there (${count(agent.trials.length, "trial")}) is lost there and goes on elsewhere. `}
          An agent that still runs there connects again as long as its token is good.
        </p>
      ),
      onYes: async () => {
        const force = agent.trials.length > 0 ? "?force=true" : "";
        await act(() => request("DELETE", path + force), `${agent.id} is removed`, "cluster");
      },
    });
  return (
    <>
      {isDraining && may("cancel_drain") && (
        <button
          type="button"
          class="small"
          onClick={() =>
            void act(() => request("DELETE", `${path}/drain`), `${agent.id} takes trials again`, "cluster")
          }
        >
          Take trials again
        </button>
      )}
      {!isDraining && agent.state !== "away" && may("drain_agent") && (
        <button type="button" class="small" onClick={drain}>
          Drain
        </button>
      )}
      {(isDraining || agent.state === "away" || agent.joined) && may("remove_agent") && (
        <button type="button" class="small" onClick={remove}>
          Remove
        </button>
      )}
    </>
  );
}

const DEVICE_STATES: Record<string, string> = {
  free: "free",
  held: "held by trials",
  occupied: "used by something else",
  lost: "failed",
};

function DeviceCard({ device, names }: { device: Device; names: Names }) {
  return (
    <div class={`device ${device.state}`}>
      <strong class="clip" title={device.uuid}>
        {device.name}
      </strong>
      <div class="muted">{bytes(device.memory_bytes)}</div>
      <div class={device.state === "lost" ? "bad-text" : ""}>
        {DEVICE_STATES[device.state] ?? device.state}
        {device.lost && `: ${device.lost}`}
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
          const [experiment, trial] = partsOf(one.id);
          return (
            <li key={one.id}>
              <To to={trialPath(experiment, trial)} class="clip">
                {names.get(experiment) ?? experiment}, trial {trial}
              </To>
              {one.share < 1 && <span class="muted"> {number(one.share)}</span>}
            </li>
          );
        })}
      </ul>
    </div>
  );
}

/** What provides nodes as trials ask for them: how many there are, how many are wanted, and why one is not there. */
export function Executors({ executors }: { executors: Executor[] }) {
  if (executors.length === 0) return null;
  return (
    <section aria-labelledby="executors">
      <h2 id="executors">Nodes on demand</h2>
      {executors.map((executor) => (
        <article key={executor.name} class="node" aria-label={`executor ${executor.name}`}>
          <div class="row">
            <h3>{executor.name}</h3>
            <span class={`badge ${executor.state === "ok" ? "succeeded" : "failed"}`}>
              {executor.state === "ok" ? "works" : "in trouble"}
            </span>
            <code class="muted">{executor.address}</code>
          </div>
          {executor.state !== "ok" && <p class="warn-text">{executor.state}</p>}
          <p class="node-facts">
            <span>
              {count(executor.nodes.length, "node")}, {number(executor.wanted)} wanted
            </span>
            <span>
              {number(executor.min)} to {number(executor.max)} at a time
            </span>
            <span>
              {Object.entries(executor.resources)
                .map(([name, amount]) => `${name} ${number(amount)}`)
                .join(" · ")}
            </span>
          </p>
          {executor.nodes.length > 0 && (
            <div class="scroll-x">
              <table class="list">
                <thead>
                  <tr>
                    <th scope="col">Agent</th>
                    <th scope="col">Host</th>
                    <th scope="col" class="numeric">
                      Cores
                    </th>
                    <th scope="col">State</th>
                    <th scope="col">Why</th>
                  </tr>
                </thead>
                <tbody>
                  {executor.nodes.map((node) => (
                    <tr key={node.agent}>
                      <th scope="row">{node.agent}</th>
                      <td title={node.ray_node}>{node.host || "–"}</td>
                      <td class="numeric">{number(node.cpus)}</td>
                      <td>
                        <NodeBadge state={node.state} />
                      </td>
                      <td>{node.reason || (node.busy ? "trials run there" : "it is free")}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          )}
          {executor.lost.length > 0 && (
            <details>
              <summary>{count(executor.lost.length, "node")} lost lately</summary>
              <ul class="plain">
                {executor.lost.toReversed().map((one) => (
                  <li key={one.agent}>
                    <code>{one.agent}</code> {one.reason}
                  </li>
                ))}
              </ul>
            </details>
          )}
        </article>
      ))}
    </section>
  );
}
