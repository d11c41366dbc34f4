// Experiments beside one another by their best so far, and trials by their parameters.
import { useMemo } from "preact/hooks";
import { experimentUrl, Problem, read, trialUrl } from "../api/client";
import { useResource } from "../api/resource";
import { type ExperimentDetail, type Json, objectives, own, type TrialDetail } from "../api/shapes";
import { trialsOf } from "../api/trials";
import { Awaited, Stale } from "../parts/awaited";
import { Badge, Empty, Switch, To } from "../parts/controls";
import { type Course, CoursesPlot } from "../plots/courses";
import { bestSoFar } from "../plots/points";
import { amend, experimentPath, query, trialPath } from "../state/address";
import { cell, duration, exact, number, numeric } from "../state/format";
import { rangeWords } from "../state/space";
import { flatOf } from "./trial";

const MOST = 12;

export function ComparePage() {
  const list = (name: string) => (query.value.get(name) ?? "").split(",").filter(Boolean).slice(0, MOST);
  const ids = list("ids");
  const trials = list("trials");
  document.title = "Compare · Tuner";
  if (ids.length === 0 && trials.length === 0)
    return (
      <Empty title="Nothing is chosen">
        Choose several <To to="/">experiments</To> in their list, or a few trials by a filter in the table of
        one.
      </Empty>
    );
  return (
    <>
      <div class="page-head">
        <h1>Compare</h1>
      </div>
      {ids.length > 0 && <Experiments ids={ids} />}
      {trials.length > 0 && <TrialsBeside keys={trials} />}
    </>
  );
}

export interface There<T> {
  found: T[];
  /** The names of those that are not there. */
  gone: string[];
}

/** Of several reads, by what they are called, those of what is there. Raises a Problem where nothing is, or one fails otherwise. */
export async function thoseThere<T>(reads: readonly [string, Promise<T>][]): Promise<There<T>> {
  const isGone = (error: unknown) => error instanceof Problem && error.status === 404;
  const found: T[] = [];
  const gone: string[] = [];
  let last: unknown;
  for (const [place, one] of (await Promise.allSettled(reads.map(([, read]) => read))).entries()) {
    if (one.status === "fulfilled") found.push(one.value);
    else if (!isGone(one.reason)) throw one.reason;
    else gone.push(reads[place][0]);
    if (one.status === "rejected") last = one.reason;
  }
  if (found.length === 0) throw last;
  return { found, gone };
}

function Gone({ names }: { names: readonly string[] }) {
  if (names.length === 0) return null;
  return <p class="note warn-text">Not there any more: {names.join(", ")}.</p>;
}

function Experiments({ ids }: { ids: string[] }) {
  const key = ids.join(",");
  const states = useMemo(() => ids.map(trialsOf), [key]);
  const found = useResource(
    ["compare", key],
    (signal) =>
      thoseThere(
        ids.map((id, place) => {
          const reads = async () => {
            const view = await read<ExperimentDetail>(experimentUrl(id), signal);
            await states[place].load(signal); // only what has changed
            return { view, trials: states[place].trials };
          };
          return [id, reads()];
        }),
      ),
    ids,
    2_000,
  );
  const overTime = query.value.get("over") === "time";
  const log = query.value.get("log") === "1";
  const all = found.data.value?.found;
  const courses = useMemo(
    () =>
      (all ?? []).map(({ view, trials }): Course => {
        const maximize = objectives(view)[0]?.goal === "maximize";
        const rows = [...Array(trials.length).keys()].filter((row) => trials.statusOf(row) === "succeeded");
        const begin = rows.reduce(
          (least, row) => Math.min(least, trials.started[row]),
          Number.POSITIVE_INFINITY,
        );
        const order = [...rows].sort((one, other) => trials.ended[one] - trials.ended[other]);
        const points = order.map((row, place) => ({
          x: overTime ? (trials.ended[row] - begin) / 1_000 : place + 1,
          y: trials.value[row],
        }));
        return {
          name: view.name,
          steps: bestSoFar(points, maximize),
          until: points[points.length - 1]?.x ?? 0,
        };
      }),
    [all, overTime],
  );
  if (!all) return <Awaited of={found} what="The experiments" />;
  const metrics = new Set(all.map(({ view }) => JSON.stringify(view.objective)));
  return (
    <section>
      <Stale of={found} what="The experiments" />
      <Gone names={found.data.value?.gone ?? []} />
      {metrics.size > 1 && (
        <p class="note warn-text">They have different objectives: their values cannot be compared.</p>
      )}
      <CoursesPlot
        courses={courses}
        overTime={overTime}
        log={log}
        metric={objectives(all[0].view)[0]?.metric ?? "value"}
        controls={
          <>
            <Switch label="log" on={log} onChange={(on) => amend({ log: on ? "1" : null })} />
            <Switch label="over time" on={overTime} onChange={(on) => amend({ over: on ? "time" : null })} />
          </>
        }
      />
      <Beside
        heads={all.map(({ view }) => (
          <To key={view.id} to={experimentPath(view.id)}>
            {view.name}
          </To>
        ))}
        rows={[
          ["status", all.map(({ view }) => view.status)],
          ["best", all.map(({ view }) => numeric(view.best?.value))],
          [
            "trials done",
            all.map(({ view }) => (view.counts.succeeded ?? 0) + (view.counts.early_stopped ?? 0)),
          ],
          ["failed", all.map(({ view }) => view.counts.failed ?? 0)],
          ["time", all.map(({ view }) => duration(view.running_s))],
          ["at a time", all.map(({ view }) => view.budget.parallel)],
          ["tuner", all.map(({ view }) => algorithm(view.tuner))],
          ["assessor", all.map(({ view }) => algorithm(view.assessor))],
          ["advisor", all.map(({ view }) => algorithm(view.advisor))],
          ["seed", all.map(({ view }) => String(view.seed))],
          ...namesIn(all.map(({ view }) => view.inputs)).map((name): [string, unknown[]] => [
            `input: ${name}`,
            all.map(({ view }) => own(view.inputs, name)),
          ]),
          ...namesIn(all.map(({ view }) => view.search_space)).map((name): [string, unknown[]] => [
            `space: ${name}`,
            all.map(({ view }) => spaceWords(name, own(view.search_space, name))),
          ]),
        ]}
      />
    </section>
  );
}

function namesIn(all: readonly object[]): string[] {
  return [...new Set(all.flatMap((one) => Object.keys(one)))];
}

function spaceWords(name: string, range: Json | undefined): unknown {
  return range === undefined || name === "constraints" ? range : rangeWords(range);
}

function algorithm(value: unknown): string {
  const { name, class: own } = (value ?? {}) as { name?: string; class?: string };
  return name ?? own ?? "none";
}

function TrialsBeside({ keys }: { keys: string[] }) {
  const pairs = keys.map((key) => ({
    id: key.slice(0, key.lastIndexOf("/")),
    number: Number(key.slice(key.lastIndexOf("/") + 1)),
  }));
  const found = useResource(
    ["trials", keys.join(",")],
    (signal) =>
      thoseThere(
        pairs.map(({ id, number }) => {
          const reads = async () => ({ id, trial: await read<TrialDetail>(trialUrl(id, number), signal) });
          return [`trial ${id}/${number}`, reads()];
        }),
      ),
    pairs.map((pair) => pair.id),
    1_000,
  );
  const there = found.data.value;
  if (!there) return <Awaited of={found} what="The trials" />;
  const all = there.found.map(({ trial }) => trial);
  const flat = all.map((trial) => flatOf(trial.parameters));
  const names = [...new Set(flat.flatMap((one) => [...one.keys()]))];
  return (
    <section>
      <Stale of={found} what="The trials" />
      <Gone names={there.gone} />
      <Beside
        heads={all.map((trial, place) => (
          <>
            <To to={trialPath(there.found[place].id, trial.number)}>trial {trial.number}</To>{" "}
            <Badge status={trial.status} />
          </>
        ))}
        rows={[
          ["value", all.map((trial) => numeric(trial.value))],
          ["step", all.map((trial) => trial.last?.step ?? null)],
          ["took", all.map((trial) => duration(trial.running_s))],
          ["attempts", all.map((trial) => trial.attempts)],
          ...names.map((name): [string, unknown[]] => [name, flat.map((one) => one.get(name))]),
        ]}
      />
    </section>
  );
}

function Beside({ heads, rows }: { heads: preact.ComponentChildren[]; rows: [string, unknown[]][] }) {
  const only = query.value.get("same") === "0";
  const differs = (values: unknown[]) => new Set(values.map(exact)).size > 1;
  const shown = only ? rows.filter(([, values]) => differs(values)) : rows;
  return (
    <>
      <div class="bar">
        <Switch label="differences only" on={only} onChange={(on) => amend({ same: on ? "0" : null })} />
      </div>
      <div class="scroll-x">
        <table class="pairs beside">
          <thead>
            <tr>
              <td />
              {heads.map((head, place) => (
                <th key={String(place)} scope="col">
                  <div class="some-lines">{head}</div>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map(([name, values]) => (
              <tr key={name} class={differs(values) ? "differs" : ""}>
                <th scope="row" class="clip" title={name}>
                  {name}
                </th>
                {values.map((value, place) => (
                  <td key={String(place)} title={exact(value)}>
                    <div class="some-lines">{typeof value === "number" ? number(value, 6) : cell(value)}</div>
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {shown.length === 0 && <p class="muted">Nothing is different.</p>}
    </>
  );
}
