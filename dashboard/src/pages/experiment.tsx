// One experiment: what it is, how it goes, what can be done, and its tabs.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { experimentUrl, forgetEarly, read } from "../api/client";
import { watch } from "../api/live";
import { useResource } from "../api/resource";
import { may } from "../api/session";
import { type ExperimentDetail, ended, objectives, type Values } from "../api/shapes";
import { trialsOf } from "../api/trials";
import * as actions from "../parts/actions";
import { Stale } from "../parts/awaited";
import { AwayNodes } from "../parts/away";
import { Badge, copy, EditInPlace, Loading, To, Trouble } from "../parts/controls";
import { ask } from "../parts/dialog";
import { boundOf, numberOf } from "../parts/entered";
import { AddTrial, CloneDialog } from "../parts/experiment-dialogs";
import { CopyIcon } from "../parts/icons";
import { Menu } from "../parts/menu";
import { type Form, write } from "../parts/values";
import { amend, go, query, trialPath } from "../state/address";
import { ago, bytes, clock, count, duration, moment, number, numeric } from "../state/format";
import { loadedAt, now } from "../state/now";
import { archiveWords, isTroubled, whyExperiment } from "../state/words";
import { FilesTab } from "./experiment-files";
import { JournalTab } from "./experiment-journal";
import { OverviewTab, readOverviewEarly } from "./experiment-overview";
import { SpaceTab } from "./experiment-space";
import { TimelineTab } from "./experiment-timeline";
import { TrialsTab } from "./experiment-trials";
import { remaining } from "./experiments";
import { useFiltered } from "./filtered";

const TABLE_MS = 500; // between two looks at its trials while they go on; the first change is read at once

const TABS: readonly [string, string][] = [
  ["overview", "Overview"],
  ["trials", "Trials"],
  ["timeline", "Timeline"],
  ["space", "Space"],
  ["journal", "Journal"],
  ["files", "Files and notes"],
];

export function ExperimentPage({ id }: { id: string }) {
  const detail = useResource([id], (signal) => read<ExperimentDetail>(experimentUrl(id), signal), [id]);
  const state = useMemo(() => trialsOf(id), [id]);
  const table = useResource([id, "table"], (signal) => state.load(signal), [id], TABLE_MS);
  useEffect(() => {
    if (!query.peek().has("tab")) readOverviewEarly(id);
    const stop = watch([id], forgetEarly);
    return () => {
      stop();
      forgetEarly();
    };
  }, [id]);
  const filtered = useFiltered(state);
  const view = detail.data.value;
  if (!view)
    return detail.problem.value ? (
      <Trouble problem={detail.problem.value} onAgain={detail.reload} />
    ) : (
      <Loading what="The experiment" />
    );
  if (detail.problem.value?.status === 404) return <Trouble problem={detail.problem.value} />;
  document.title = `${view.name} · Tuner`;
  const tab = TABS.some(([name]) => name === query.value.get("tab"))
    ? (query.value.get("tab") ?? "overview")
    : "overview";
  const parts = { view, state, filtered, table };
  return (
    <>
      <Stale of={detail} what="The experiment" />
      <Head view={view} />
      <div class="tabs" role="tablist" aria-label="Parts of the experiment" onKeyDown={tabKeys}>
        {TABS.map(([name, words]) => (
          <button
            key={name}
            type="button"
            role="tab"
            id={`tab-${name}`}
            aria-selected={tab === name}
            aria-controls="tab-panel"
            tabIndex={tab === name ? 0 : -1}
            ref={tab === name ? intoView : null}
            onClick={() => amend({ tab: name === "overview" ? null : name }, false)}
          >
            {words}
          </button>
        ))}
      </div>
      <div role="tabpanel" id="tab-panel" aria-labelledby={`tab-${tab}`}>
        {state.revision.value > 0 && <Stale of={table} what="The trials" />}
        {tab === "overview" && <OverviewTab {...parts} />}
        {tab === "trials" && <TrialsTab {...parts} />}
        {tab === "timeline" && <TimelineTab {...parts} />}
        {tab === "space" && <SpaceTab view={view} />}
        {tab === "journal" && <JournalTab view={view} />}
        {tab === "files" && <FilesTab view={view} />}
      </div>
    </>
  );
}

/** On a narrow screen not every tab is seen. */
function intoView(tab: HTMLElement | null): void {
  const row = tab?.parentElement;
  if (!tab || !row) return;
  if (tab.offsetLeft + tab.offsetWidth > row.scrollLeft + row.clientWidth || tab.offsetLeft < row.scrollLeft)
    row.scrollLeft = tab.offsetLeft - 40;
}

function tabKeys(event: KeyboardEvent): void {
  const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
  const tabs = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("[role=tab]")];
  const there = tabs.indexOf(event.target as HTMLElement);
  if (step === 0 || there < 0) return;
  const next = tabs[(there + step + tabs.length) % tabs.length];
  next.focus();
  next.click();
}

function Head({ view }: { view: ExperimentDetail }) {
  const dialog = useSignal<"add" | "clone" | null>(null);
  const { id, counts } = view;
  const close = () => {
    dialog.value = null;
  };
  const stop = () =>
    ask({
      title: `Stop ${view.name}?`,
      body: <p>Its trials are stopped, with their checkpoints. Resume goes on where it was.</p>,
      yes: "Stop",
      onYes: async () => {
        await actions.stop(id);
      },
    });
  const remove = () =>
    ask({
      title: `Remove ${view.name} and everything of it?`,
      danger: true,
      yes: "Remove",
      body: (
        <p>
          {count(
            Object.values(counts).reduce((sum, one) => sum + one, 0),
            "trial",
          )}{" "}
          with their reports, checkpoints and logs are deleted. This cannot be taken back.
        </p>
      ),
      onYes: async () => {
        if (await actions.remove(id)) go("/");
      },
    });
  return (
    <div class="experiment-head">
      <nav class="crumbs" aria-label="Where this is">
        <To to="/">Experiments</To> <span aria-hidden="true">/</span> <code>{id}</code>{" "}
        <span title={clock(moment(view.created_at))}>· begun {ago(moment(view.created_at), now.value)}</span>
        <span class="clip">· {algorithmsOf(view)}</span>
      </nav>
      <div class="page-head">
        <h1>
          <EditInPlace
            by="change_experiment"
            label="name"
            value={view.name}
            shown={
              <span class="title clip-2" title={view.name}>
                {view.name}
              </span>
            }
            wide
            onSave={(name) => actions.change(id, { name })}
          />
        </h1>
        <Badge status={view.status} trouble={isTroubled(view)} />
        <div class="grow" />
        <div class="row actions">
          {view.status === "running" && may("pause_experiment") && (
            <button type="button" onClick={() => void actions.pause(id)}>
              Pause
            </button>
          )}
          {view.status !== "running" && view.status !== "stopping" && may("resume_experiment") && (
            <button
              type="button"
              class={view.status === "completed" ? "" : "primary"}
              onClick={() => void actions.resume(id)}
            >
              Resume
            </button>
          )}
          {!ended(view.status) && may("stop_experiment") && (
            <button type="button" onClick={stop}>
              Stop
            </button>
          )}
          {may("add_trial") && (
            <button
              type="button"
              onClick={() => {
                dialog.value = "add";
              }}
            >
              Add trial
            </button>
          )}
          {(counts.failed ?? 0) > 0 && may("retry_trials") && (
            <button type="button" onClick={() => void actions.retryFailed(id)}>
              Retry failed
            </button>
          )}
          {may("clone_experiment") && (
            <More
              view={view}
              onClone={() => {
                dialog.value = "clone";
              }}
              onRemove={remove}
            />
          )}
        </div>
      </div>
      <p class={isTroubled(view) || view.status === "failed" ? "why-line loud" : "why-line"}>
        {whyExperiment(view)}
        {(view.no_node || view.waits_for) && (
          <>
            {" "}
            ·{" "}
            <span class="warn-text">
              a trial waits for {view.no_node ? `a node: ${view.no_node}` : view.waits_for}
            </span>
          </>
        )}
      </p>
      {view.running.length > 0 && <AwayNodes id={id} />}
      <Chosen view={view} />
      <Archived view={view} />
      {view.detail && (
        <details class="trace">
          <summary>What the algorithm said</summary>
          <pre>{view.detail}</pre>
        </details>
      )}
      <Facts view={view} />
      {dialog.value === "add" && <AddTrial view={view} onClose={close} />}
      {dialog.value === "clone" && <CloneDialog view={view} onClose={close} />}
    </div>
  );
}

/** What is done seldom. */
function More({ view, onClone, onRemove }: { view: ExperimentDetail; onClone(): void; onRemove(): void }) {
  return (
    <Menu label="More actions" icon="▾" text="More">
      <button type="button" role="menuitem" onClick={onClone}>
        Clone
      </button>
      {may("create_experiment") && (
        <button type="button" role="menuitem" onClick={() => go(`/new?from=${encodeURIComponent(view.id)}`)}>
          New from this one
        </button>
      )}
      {may("archive_experiment") && <ArchiveItem view={view} />}
      {may("delete_experiment") && (
        <button
          type="button"
          role="menuitem"
          disabled={!ended(view.status)}
          title={ended(view.status) ? "" : "stop it first"}
          onClick={onRemove}
        >
          Remove
        </button>
      )}
    </Menu>
  );
}

/** Who proposes and who stops: the first thing to know of a search after its best. */
function algorithmsOf(view: ExperimentDetail): string {
  const name = (one: Values | null) => String(one?.name ?? one?.class ?? "");
  if (view.advisor) return `${name(view.advisor)} proposes and stops`;
  const tuner = `${name(view.tuner)} proposes`;
  return view.assessor ? `${tuner}, ${name(view.assessor)} stops` : tuner;
}

/** What `auto` took, and why. */
function Chosen({ view }: { view: ExperimentDetail }) {
  const found = Object.entries(view.chosen);
  if (found.length === 0) return null;
  const words = found.map(([kind, reason]) => `${kind}: ${reason}`).join("; ");
  return (
    <p class="why-line">
      <span class="clip-2" title={words}>
        Chosen for it: {words}
      </span>
    </p>
  );
}

function ArchiveItem({ view }: { view: ExperimentDetail }) {
  const phase = view.archive?.phase;
  const isThere = phase === "archived";
  const may = ended(view.status) && (isThere || phase === undefined || phase === "failed");
  return (
    <button
      type="button"
      role="menuitem"
      disabled={!may}
      title={ended(view.status) ? "" : "stop it first"}
      onClick={() => void (isThere ? actions.unarchive(view.id) : actions.archive(view.id))}
    >
      {isThere ? "Bring the metrics back" : "Archive the metrics"}
    </button>
  );
}

/** That its learning curves are elsewhere, how much there is, and how they come back. */
function Archived({ view }: { view: ExperimentDetail }) {
  const { archive } = view;
  if (!archive) return null;
  const size = `${count(archive.reports, "report")}${archive.bytes ? `, ${bytes(archive.bytes)}` : ""}`;
  return (
    <p class={archive.phase === "failed" ? "banner bad" : "banner"} role="status">
      <span>
        {archiveWords(archive.phase)} ({size}).{" "}
        {archive.message ||
          "Trials, their final values and the best stay readable; curves come back with the metrics."}
      </span>
      {archive.phase === "archived" && may("unarchive_experiment") && (
        <button type="button" class="small" onClick={() => void actions.unarchive(view.id)}>
          Bring them back
        </button>
      )}
    </p>
  );
}

function Facts({ view }: { view: ExperimentDetail }) {
  const { id, counts, budget } = view;
  const done = (counts.succeeded ?? 0) + (counts.early_stopped ?? 0);
  const running =
    view.status === "running"
      ? Math.max(0, view.running_s + (now.value - loadedAt(view)) / 1_000)
      : view.running_s;
  const change = (field: "trials" | "parallel" | "duration") => async (text: string) => {
    const value = field === "parallel" ? numberOf(text) : field === "trials" ? boundOf(text) : text || null;
    await actions.change(id, { budget: { [field]: value } });
  };
  return (
    <dl class="facts">
      <div class="best-fact">
        <dt>Best {objectives(view)[0]?.metric}</dt>
        <dd>
          <BestValue view={view} />
        </dd>
      </div>
      <div>
        <dt>Done</dt>
        <dd>
          {number(done)}
          {budget.trials ? " of " : ", "}
          <EditInPlace
            by="change_experiment"
            label="trials of the budget"
            type="number"
            hint="no bound"
            value={String(budget.trials ?? "")}
            shown={budget.trials ? number(budget.trials) : "no bound"}
            onSave={change("trials")}
          />
          {view.status === "running" && <div class="why">{remaining({ ...view, running_s: running })}</div>}
        </dd>
      </div>
      <div>
        <dt>At a time</dt>
        <dd>
          <EditInPlace
            by="change_experiment"
            label="trials at a time"
            type="number"
            value={String(budget.parallel)}
            shown={number(budget.parallel)}
            onSave={change("parallel")}
          />
        </dd>
      </div>
      <div>
        <dt>Time</dt>
        <dd title={`${number(running)} s`}>
          {duration(running)}
          {budget.duration ? " of " : ", "}
          <EditInPlace
            by="change_experiment"
            label="duration of the budget"
            value={budget.duration ? `${budget.duration}s` : ""}
            hint="2h, 30min; nothing: no bound"
            shown={budget.duration ? duration(budget.duration) : "no bound"}
            onSave={change("duration")}
          />
        </dd>
      </div>
      <div>
        <dt>Trials</dt>
        <dd>
          <StatusBar counts={counts} />
        </dd>
      </div>
    </dl>
  );
}

const ORDER = [
  "succeeded",
  "early_stopped",
  "running",
  "waiting",
  "paused",
  "stopping",
  "failed",
  "canceled",
];

function StatusBar({ counts }: { counts: Record<string, number> }) {
  const there = ORDER.filter((status) => (counts[status] ?? 0) > 0);
  if (there.length === 0) return <>none yet</>;
  return (
    <span class="counts">
      {there.map((status) => (
        <button
          type="button"
          key={status}
          class="count"
          onClick={() => amend({ tab: "trials", q: `status = ${status}` }, false)}
        >
          {number(counts[status])} <Badge status={status} />
        </button>
      ))}
    </span>
  );
}

const FORMS: readonly [Form, string][] = [
  ["arguments", "arguments"],
  ["environment", "environment"],
  ["yaml", "YAML"],
  ["python", "Python"],
  ["json", "JSON"],
];

function BestValue({ view }: { view: ExperimentDetail }) {
  const { best } = view;
  if (!best) return <span class="muted">none yet</span>;
  return (
    <>
      <To to={trialPath(view.id, best.number)} title={String(best.value)}>
        <strong>{number(numeric(best.value), 6)}</strong>
      </To>{" "}
      <span class="muted">trial {best.number}</span>{" "}
      {best.parameters && (
        <Menu label="Copy the best parameters" icon={<CopyIcon />}>
          {FORMS.map(([form, words]) => (
            <button
              key={form}
              type="button"
              role="menuitem"
              onClick={() =>
                void copy(write(best.parameters ?? {}, form), `The best parameters, as ${words}, are copied`)
              }
            >
              Copy as {words}
            </button>
          ))}
        </Menu>
      )}
    </>
  );
}
