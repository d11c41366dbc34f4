// One trial: its parameters beside the best's, its curves, its attempts with their ends in words, its log.
import { useMemo } from "preact/hooks";
import { experimentUrl, read, trialUrl } from "../api/client";
import { type Reports, reportsReader } from "../api/reports";
import { useResource } from "../api/resource";
import { may } from "../api/session";
import { type ExperimentDetail, objectives, type TrialDetail, type Values } from "../api/shapes";
import * as actions from "../parts/actions";
import { Stale } from "../parts/awaited";
import { Badge, Copyable, copy, Loading, Switch, To, Trouble } from "../parts/controls";
import { ask } from "../parts/dialog";
import { CopyIcon } from "../parts/icons";
import { Menu } from "../parts/menu";
import { type Form, shell, write } from "../parts/values";
import { MetricPlot } from "../plots/metric";
import { amend, experimentPath, query, trialPath } from "../state/address";
import { ENDED, flatten, ranFor } from "../state/columns";
import { ago, cell, clock, count, duration, exact, moment, number, numeric } from "../state/format";
import { loadedAt, now } from "../state/now";
import { archiveWords, whyTrial } from "../state/words";
import { Attempts } from "./trial-attempts";
import { Checkpoints, Inputs, Outputs } from "./trial-files";

export function TrialPage({ id, number: number_ }: { id: string; number: number }) {
  const found = useResource([id, number_], (signal) => read<TrialDetail>(trialUrl(id, number_), signal), [
    id,
  ]);
  const experiment = useResource(
    [id, "detail"],
    (signal) => read<ExperimentDetail>(experimentUrl(id), signal),
    [id],
    1_000,
  );
  const reader = useMemo(
    () => reportsReader(id, number_, () => ENDED.has(found.data.peek()?.status ?? "")),
    [id, number_],
  );
  const metrics = useResource([id, number_, "metrics"], reader, [id], 500);
  const trial = found.data.value;
  if (found.problem.value && (!trial || found.problem.value.status === 404))
    return <Trouble problem={found.problem.value} onAgain={found.reload} />;
  if (!trial) return <Loading what="The trial" />;
  const view = experiment.data.value;
  document.title = `trial ${trial.number} · ${view?.name ?? id} · Tuner`;
  return (
    <>
      <Stale of={found} what="The trial" />
      <Head trial={trial} id={id} view={view} />
      <div class="columns">
        <section aria-labelledby="parameters" class="figure">
          <Parameters trial={trial} view={view} />
          <Inputs trial={trial} />
        </section>
        <section aria-label="Metrics">
          {view?.archive && !metrics.data.value ? (
            <ArchivedMetrics view={view} />
          ) : metrics.problem.value && !metrics.data.value ? (
            <Trouble problem={metrics.problem.value} onAgain={metrics.reload} />
          ) : (
            <>
              {!view?.archive && <Stale of={metrics} what="The reports" />}
              <Curves trial={trial} reports={metrics.data.value} id={id} view={view} />
            </>
          )}
        </section>
      </div>
      <Attempts trial={trial} id={id} />
      <Checkpoints id={id} trial={trial} />
      <Outputs id={id} trial={trial} />
      {trial.command.length > 0 && (
        <section aria-labelledby="alone">
          <h2 id="alone">Run it alone</h2>
          <p class="muted">In the folder of the code; without the service it prints what it would report.</p>
          <Copyable text={trial.command.map(shell).join(" ")} label="the command" />
        </section>
      )}
    </>
  );
}

function ArchivedMetrics({ view }: { view: ExperimentDetail }) {
  return (
    <div class="figure">
      <h2>Metrics</h2>
      <p>{archiveWords(view.archive?.phase)}: its final value stays, its curve comes back with them.</p>
      {view.archive?.phase === "archived" && may("unarchive_experiment") && (
        <button type="button" onClick={() => void actions.unarchive(view.id)}>
          Bring them back
        </button>
      )}
    </div>
  );
}

function Head({ trial, id, view }: { trial: TrialDetail; id: string; view: ExperimentDetail | undefined }) {
  const over = ENDED.has(trial.status);
  const metric = view ? objectives(view)[0]?.metric : "value";
  const best = view?.best;
  const ran = ranFor({ status: trial.status, ran: trial.running_s, told: loadedAt(trial) }, now.value);
  const stop = () =>
    ask({
      title: `Give up trial ${trial.number}?`,
      body: <p>Its process is stopped. It uses none of the budget, and can be tried again as a new trial.</p>,
      yes: "Give it up",
      onYes: async () => {
        await actions.stopTrial(id, trial.number);
      },
    });
  return (
    <div class="experiment-head">
      <nav class="crumbs" aria-label="Where this is">
        <To to="/">Experiments</To> <span aria-hidden="true">/</span>{" "}
        <To to={experimentPath(id)} class="clip">
          {view?.name ?? id}
        </To>{" "}
        <span aria-hidden="true">/</span> <To to={experimentPath(id, { tab: "trials" })}>Trials</To>
      </nav>
      <div class="page-head">
        <h1>Trial {trial.number}</h1>
        <Badge status={trial.status} />
        {best?.number === trial.number && <span class="best-mark">★ the best</span>}
        <div class="grow" />
        <div class="row actions">
          {trial.number > 1 && (
            <To class="button" to={trialPath(id, trial.number - 1)} aria-label="the trial before">
              ‹
            </To>
          )}
          <To class="button" to={trialPath(id, trial.number + 1)} aria-label="the next trial">
            ›
          </To>
          {best && best.number !== trial.number && (
            <To
              class="button"
              to={`/compare?trials=${encodeURIComponent(id)}/${trial.number},${encodeURIComponent(id)}/${best.number}`}
            >
              Beside the best
            </To>
          )}
          <To class="button" to={experimentPath(id, { tab: "journal", j: `trial ${trial.number}` })}>
            Journal of it
          </To>
          {!over && may("stop_trial") && (
            <button type="button" onClick={stop}>
              Give up
            </button>
          )}
          {over && may("retry_trial") && (
            <button type="button" onClick={() => void actions.retryTrial(id, trial.number)}>
              Try again
            </button>
          )}
        </div>
      </div>
      <p class="why-line">{whyTrial(trial)}</p>
      <dl class="facts">
        <div>
          <dt>{metric}</dt>
          <dd title={String(trial.value)}>
            <strong>{number(numeric(trial.value ?? trial.last?.metrics[metric ?? ""]), 6)}</strong>
            {trial.value === null && trial.last ? <span class="muted"> so far</span> : null}
          </dd>
        </div>
        <div>
          <dt>Step</dt>
          <dd>{number(trial.last?.step)}</dd>
        </div>
        <div>
          <dt>Took</dt>
          <dd title={`${Number(ran.toFixed(3))} s`}>{duration(ran)}</dd>
        </div>
        {!over && (
          <div>
            <dt>Last report</dt>
            <dd title={clock(moment(trial.reported_at))}>{ago(moment(trial.reported_at), now.value)}</dd>
          </div>
        )}
        <div>
          <dt>Started</dt>
          <dd title={clock(moment(trial.started_at))}>{ago(moment(trial.started_at), now.value)}</dd>
        </div>
        <div>
          <dt>From</dt>
          <dd>
            {trial.retry_of ? (
              <To to={trialPath(id, trial.retry_of)}>again, of trial {trial.retry_of}</To>
            ) : trial.forked_from ? (
              <To to={trialPath(id, trial.forked_from)}>the checkpoint of trial {trial.forked_from}</To>
            ) : (
              (SOURCES[trial.source] ?? trial.source)
            )}
          </dd>
        </div>
      </dl>
    </div>
  );
}

const SOURCES: Record<string, string> = {
  tuner: "the tuner",
  custom: "a person",
  imported: "elsewhere",
  retry: "a retry",
};
const FORMS: readonly [Form, string][] = [
  ["arguments", "arguments"],
  ["environment", "environment"],
  ["yaml", "YAML"],
  ["python", "Python"],
  ["json", "JSON"],
];

export function flatOf(values: Values | null | undefined): Map<string, unknown> {
  const found = new Map<string, unknown>();
  if (values) flatten(values, "", (name, value) => found.set(name, value));
  return found;
}

function Parameters({ trial, view }: { trial: TrialDetail; view: ExperimentDetail | undefined }) {
  const mine = flatOf(trial.parameters);
  const best = view?.best && view.best.number !== trial.number ? flatOf(view.best.parameters) : null;
  const names = [...new Set([...mine.keys(), ...(best?.keys() ?? [])])];
  return (
    <>
      <div class="section-head">
        <h2 id="parameters">Parameters</h2>
        <Menu label="Copy the parameters" icon={<CopyIcon />} text="Copy">
          {FORMS.map(([form, words]) => (
            <button
              key={form}
              type="button"
              role="menuitem"
              onClick={() =>
                void copy(write(trial.parameters, form), `The parameters, as ${words}, are copied`)
              }
            >
              as {words}
            </button>
          ))}
        </Menu>
      </div>
      {names.length === 0 && <p class="muted">It has no parameters.</p>}
      <table class="pairs parameters">
        {best && (
          <thead>
            <tr>
              <th scope="col">name</th>
              <th scope="col">this one</th>
              <th scope="col">the best, trial {view?.best?.number}</th>
            </tr>
          </thead>
        )}
        <tbody>
          {names.map((name) => {
            const differs = best && exact(mine.get(name)) !== exact(best.get(name));
            return (
              <tr key={name} class={differs ? "differs" : ""}>
                <th scope="row" class="clip" title={name}>
                  {name}
                </th>
                <td title={exact(mine.get(name))}>
                  <div class="some-lines">{cell(mine.get(name))}</div>
                </td>
                {best && (
                  <td title={exact(best.get(name))}>
                    {differs ? (
                      <div class="some-lines">
                        <span aria-hidden="true">≠ </span>
                        {cell(best.get(name))}
                      </div>
                    ) : (
                      <span class="muted">the same</span>
                    )}
                  </td>
                )}
              </tr>
            );
          })}
        </tbody>
      </table>
      {trial.further_parameters.length > 0 && (
        <p class="note">
          Its script asked for {count(trial.further_parameters.length, "further set")} of parameters; these
          are those that its value belongs to.
        </p>
      )}
    </>
  );
}

const FEW_METRICS = 30; // that stand beside one another

/** Of very many metrics, too, each can be chosen. */
export function Choice({ names, chosen }: { names: readonly string[]; chosen: string }) {
  const choose = (metric: string) => amend({ metric });
  if (names.length <= FEW_METRICS)
    return (
      <div class="row switches">
        {names.map((name) => (
          <Switch key={name} label={name} on={name === chosen} onChange={() => choose(name)} />
        ))}
      </div>
    );
  return (
    <label class="inline">
      one of {number(names.length)}{" "}
      <select
        aria-label="the metric that is drawn"
        value={chosen}
        onChange={(event) => choose(event.currentTarget.value)}
      >
        {names.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}

function Curves({
  trial,
  reports,
  id,
  view,
}: {
  trial: TrialDetail;
  reports: Reports | undefined;
  id: string;
  view: ExperimentDetail | undefined;
}) {
  const names = useMemo(
    () => [...new Set((reports?.items ?? []).flatMap((one) => Object.keys(one.values)))],
    [reports],
  );
  const objective = view ? objectives(view)[0]?.metric : undefined;
  const chosen = names.includes(query.value.get("metric") ?? "")
    ? (query.value.get("metric") ?? "")
    : (names.find((name) => name === objective) ?? names[0]);
  if (!reports) return <Loading what="The reports" />;
  if (!chosen)
    return (
      <div class="figure">
        <h2>Metrics</h2>
        <p class="muted">{ENDED.has(trial.status) ? "It reported nothing." : "It has not reported yet."}</p>
      </div>
    );
  return (
    <>
      <MetricPlot metrics={reports.items} name={chosen} file={`${id}-${trial.number}`} />
      {reports.leftOut > 0 && (
        <p class="note">
          The newest {number(reports.items.length)} reports are drawn; {number(reports.leftOut)} before them
          are not.
        </p>
      )}
      {names.length > 1 && <Choice names={names} chosen={chosen} />}
    </>
  );
}
