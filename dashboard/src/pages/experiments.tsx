// All experiments: how far each is, how good, and what is wrong; above them the machine.
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { experimentUrl, read, readAll } from "../api/client";
import { serviceWords } from "../api/readiness";
import { useResource } from "../api/resource";
import { may } from "../api/session";
import { type Agent, type BestAnswer, type Device, type Experiment, ended, objectives } from "../api/shapes";
import * as actions from "../parts/actions";
import { Awaited, Stale } from "../parts/awaited";
import { Badge, Empty, To } from "../parts/controls";
import { ask } from "../parts/dialog";
import { readiness } from "../parts/unwell";
import { Sparkline } from "../plots/sparkline";
import { amend, experimentPath, go, query } from "../state/address";
import { ago, clock, count, duration, moment, number, numeric } from "../state/format";
import { now } from "../state/now";
import { isTroubled, whyExperiment } from "../state/words";
import { nodesWords } from "./cluster-nodes";

const MOST = 2_000;

export function ExperimentsPage() {
  const found = useResource(
    ["experiments"],
    (signal) => readAll<Experiment>("experiments?limit=1000", MOST, signal),
    ["*"],
  );
  const chosen = useSignal<ReadonlySet<string>>(new Set());
  const all = found.data.value;
  const asked = query.value.get("q") ?? "";
  const sort = query.value.get("sort") ?? "-created";
  const shown = useMemo(() => arranged(all ?? [], asked, sort), [all, asked, sort]);
  document.title = "Experiments · Tuner";
  if (!all) return <Awaited of={found} what="The list of experiments" />;
  return (
    <>
      <Stale of={found} what="The experiments" />
      <div class="page-head">
        <h1>Experiments</h1>
        <div class="grow" />
        {may("create_experiment") && (
          <To to="/new" class="button primary">
            New experiment
          </To>
        )}
      </div>
      <Machine experiments={all} />
      {all.length === 0 ? (
        <Empty title="No experiment yet" command="tuner start examples/quickstart/experiment.yaml">
          {may("create_experiment") ? (
            <>
              Start one here with <To to="/new">New experiment</To>, or in a terminal:
            </>
          ) : (
            "Whoever may start one does so here, or in a terminal:"
          )}
        </Empty>
      ) : (
        <>
          <div class="bar">
            <input
              data-filter
              type="search"
              class="filter"
              placeholder="name, tag, status …   /"
              aria-label="filter experiments"
              value={asked}
              onInput={(event) => amend({ q: event.currentTarget.value })}
            />
            <span class="muted">
              {shown.length === all.length
                ? count(all.length, "experiment")
                : `${shown.length} of ${all.length}`}
              {all.length >= MOST && ", the newest; tuner ps lists all"}
            </span>
            <div class="grow" />
            <Chosen
              chosen={all.filter((one) => chosen.value.has(one.id))}
              onDone={() => {
                chosen.value = new Set();
              }}
            />
          </div>
          {shown.length === 0 ? (
            <Empty title="Nothing fits this filter">
              <button type="button" onClick={() => amend({ q: null })}>
                Show all
              </button>
            </Empty>
          ) : (
            <List shown={shown} sort={sort} chosen={chosen} />
          )}
        </>
      )}
    </>
  );
}

export function arranged(all: readonly Experiment[], asked: string, sort: string): Experiment[] {
  const words = asked.toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.filter((one) => {
    const text = `${one.name} ${one.id} ${one.status} ${one.tags.join(" ")} ${one.note}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const down = sort.startsWith("-");
  const key = KEYS[sort.replace("-", "")] ?? KEYS.created;
  return found.sort((one, other) => {
    const [left, right] = [key(one), key(other)];
    const order = typeof left === "string" ? left.localeCompare(String(right)) : left - Number(right);
    return down ? -order : order;
  });
}

const KEYS: Record<string, (one: Experiment) => number | string> = {
  created: (one) => moment(one.created_at) ?? 0,
  name: (one) => one.name.toLowerCase(),
  status: (one) => one.status,
  done: (one) => done(one),
  best: (one) => numeric(one.best?.value) ?? Number.NEGATIVE_INFINITY,
  running: (one) => one.counts.running ?? 0,
  failed: (one) => one.counts.failed ?? 0,
};

function done(one: Experiment): number {
  return (one.counts.succeeded ?? 0) + (one.counts.early_stopped ?? 0);
}

/** Judged by how long the trials until now took, all together. */
export function remaining(one: Experiment): string {
  if (one.status !== "running") return "";
  const share = one.budget.trials ? done(one) / one.budget.trials : 0;
  const byTime = one.budget.duration ? one.budget.duration - one.running_s : Number.POSITIVE_INFINITY;
  const byTrials = share > 0 ? (one.running_s * (1 - share)) / share : Number.POSITIVE_INFINITY;
  const left = Math.min(byTime, byTrials);
  return Number.isFinite(left) ? `about ${duration(Math.max(0, left))} left` : "";
}

const HEADS: readonly [string, string, string][] = [
  ["name", "Name", ""],
  ["status", "Status", ""],
  ["done", "Done", ""],
  ["best", "Best", "numeric"],
  ["", "So far", ""],
  ["running", "Running", "numeric"],
  ["failed", "Failed", "numeric"],
  ["created", "Age", "numeric"],
];

function List({
  shown,
  sort,
  chosen,
}: {
  shown: Experiment[];
  sort: string;
  chosen: { value: ReadonlySet<string> };
}) {
  const by = (name: string) => amend({ sort: sort === `-${name}` ? name : `-${name}` });
  const state = (name: string) => (sort === name ? "ascending" : sort === `-${name}` ? "descending" : "none");
  return (
    <div class="scroll-x">
      <table class="list experiments">
        <thead>
          <tr>
            <th scope="col">
              <span class="unseen">chosen</span>
            </th>
            {HEADS.map(([name, words, kind]) => (
              <th key={words} scope="col" class={kind} aria-sort={name ? state(name) : undefined}>
                {name ? (
                  <button type="button" onClick={() => by(name)}>
                    {words}
                    <span aria-hidden="true">
                      {state(name) === "none" ? "" : state(name) === "ascending" ? " ↑" : " ↓"}
                    </span>
                  </button>
                ) : (
                  words
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((one) => (
            <Row key={one.id} one={one} chosen={chosen} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ one, chosen }: { one: Experiment; chosen: { value: ReadonlySet<string> } }) {
  const is = chosen.value.has(one.id);
  const toggle = () => {
    const next = new Set(chosen.value);
    if (is) next.delete(one.id);
    else next.add(one.id);
    chosen.value = next;
  };
  const metric = objectives(one)[0]?.metric ?? "";
  const created = moment(one.created_at);
  const target = one.budget.trials;
  return (
    <tr
      data-row
      tabIndex={-1}
      onKeyDown={(event) => {
        if (event.key === "Enter" && event.target === event.currentTarget) go(experimentPath(one.id));
      }}
      class={is ? "chosen" : ""}
    >
      <td>
        <input type="checkbox" aria-label={`choose ${one.name}`} checked={is} onChange={toggle} />
      </td>
      <td class="name">
        <To to={experimentPath(one.id)} class="clip" title={one.name}>
          {one.name}
        </To>
        <span class="tags">
          {one.tags.slice(0, 6).map((tag) => (
            <button
              type="button"
              key={tag}
              class="tag"
              title={`filter by ${tag}`}
              onClick={() => amend({ q: tag })}
            >
              {tag}
            </button>
          ))}
        </span>
      </td>
      <td>
        <Badge status={one.status} trouble={isTroubled(one)} />
        {one.status === "failed" || one.status === "paused" ? (
          <div class="why clip-2" title={whyExperiment(one)}>
            {whyExperiment(one)}
          </div>
        ) : (
          <div class="why">{remaining(one)}</div>
        )}
      </td>
      <td>
        <div class="progress-words">
          {number(done(one))}
          {target ? ` / ${number(target)}` : ""}
        </div>
        {target && (
          <progress
            max={target}
            value={Math.min(target, done(one))}
            aria-label={`${done(one)} of ${target} trials done`}
          />
        )}
      </td>
      <td class="numeric">
        {one.best ? (
          <div title={`${metric} ${one.best.value}`}>
            <strong>{number(numeric(one.best.value), 5)}</strong>
            <div class="why clip metric">{metric}</div>
          </div>
        ) : (
          "–"
        )}
      </td>
      <td>
        <Course one={one} />
      </td>
      <td class="numeric">{number(one.counts.running ?? 0)}</td>
      <td class="numeric">
        {one.counts.failed ? <span class="bad-text">{number(one.counts.failed)}</span> : "0"}
      </td>
      <td class="numeric" title={clock(created)}>
        {ago(created, now.value)}
      </td>
    </tr>
  );
}

/** The best so far. Read once for each row, and again when more trials have succeeded. */
function Course({ one }: { one: Experiment }) {
  const succeeded = one.counts.succeeded ?? 0;
  const best = useResource(
    [one.id, succeeded],
    (signal) =>
      succeeded < 2 ? Promise.resolve(null) : read<BestAnswer>(experimentUrl(one.id, "/best"), signal),
    [],
  );
  const values = (best.data.value?.history.values ?? []).map((value) => numeric(value) ?? Number.NaN);
  return <Sparkline values={values} label={`best so far of ${one.name}`} />;
}

function Chosen({ chosen, onDone }: { chosen: Experiment[]; onDone(): void }) {
  if (chosen.length === 0) return null;
  const running = chosen.filter((one) => !ended(one.status));
  const over = chosen.filter((one) => ended(one.status));
  const each = async (some: Experiment[], work: (id: string) => Promise<unknown>) => {
    for (const one of some) await work(one.id);
    onDone();
  };
  return (
    <div class="row">
      <strong>{chosen.length} chosen</strong>
      <To to={`/compare?ids=${chosen.map((one) => encodeURIComponent(one.id)).join(",")}`} class="button">
        Compare
      </To>
      {may("stop_experiment") && (
        <button
          type="button"
          disabled={running.length === 0}
          onClick={() =>
            ask({
              title: `Stop ${count(running.length, "experiment")}?`,
              body: <Names of={running} />,
              yes: "Stop",
              onYes: () => each(running, actions.stop),
            })
          }
        >
          Stop
        </button>
      )}
      {may("delete_experiment") && (
        <button
          type="button"
          disabled={over.length === 0}
          title={over.length === 0 ? "only ended experiments can be removed" : ""}
          onClick={() =>
            ask({
              title: `Remove ${count(over.length, "experiment")} and everything of them?`,
              body: (
                <>
                  <Names of={over} />
                  <p>Trials, reports, checkpoints and logs are deleted. This cannot be taken back.</p>
                </>
              ),
              yes: "Remove",
              danger: true,
              onYes: () => each(over, actions.remove),
            })
          }
        >
          Remove
        </button>
      )}
    </div>
  );
}

function Names({ of }: { of: Experiment[] }) {
  return (
    <ul class="names">
      {of.slice(0, 12).map((one) => (
        <li key={one.id}>
          {one.name} <span class="muted">{one.id}</span>
        </li>
      ))}
      {of.length > 12 && <li>and {of.length - 12} more</li>}
    </ul>
  );
}

function Machine({ experiments }: { experiments: Experiment[] }) {
  const found = useResource(
    ["machine"],
    async (signal) => {
      const [agents, devices] = await Promise.all([
        read<{ items: Agent[] }>("agents", signal),
        read<{ items: Device[] }>("devices", signal),
      ]);
      return { agents: agents.items, devices: devices.items };
    },
    ["cluster", "*"],
    2_000,
  );
  const sum = (status: string) =>
    experiments.reduce((total, one) => total + (ended(one.status) ? 0 : (one.counts[status] ?? 0)), 0);
  const machine = found.data.value;
  const service = serviceWords(readiness.value);
  const held = machine?.devices.filter((device) => device.state === "held").length ?? 0;
  return (
    <dl class="facts">
      <div>
        <dt>Running trials</dt>
        <dd>{number(sum("running"))}</dd>
      </div>
      <div>
        <dt>Waiting</dt>
        <dd>{number(sum("waiting"))}</dd>
      </div>
      <div>
        <dt>Cores</dt>
        <dd>{machine ? number(machine.agents.reduce((total, agent) => total + agent.cpus, 0)) : "…"}</dd>
      </div>
      <div>
        <dt>GPUs</dt>
        <dd>
          {machine
            ? machine.devices.length > 0
              ? `${held} of ${machine.devices.length} held`
              : "none"
            : "…"}
        </dd>
      </div>
      <div>
        <dt>Nodes</dt>
        <dd>{machine ? nodesWords(machine.agents).replace(/ nodes?/, "") : "…"}</dd>
      </div>
      <div>
        <dt>Service</dt>
        <dd class={service.tone}>{service.words}</dd>
      </div>
    </dl>
  );
}
