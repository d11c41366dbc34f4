// Every decision with its reason, newest first; reports and bookkeeping only when one asks for them.
import { useMemo } from "preact/hooks";
import { experimentUrl } from "../api/client";
import { newestOf } from "../api/growing";
import { useResource } from "../api/resource";
import { type ExperimentDetail, type JournalLine, objectives } from "../api/shapes";
import { Awaited, Stale } from "../parts/awaited";
import { Empty, Switch, To } from "../parts/controls";
import { amend, query, trialPath } from "../state/address";
import { clock, count, moment, timeOrDay } from "../state/format";
import { serviceNow } from "../state/service-clock";
import { journalWords, type Told } from "../state/words";

const PAGE = 1_000;
const MOST = 50_000; // lines that the page keeps
const SHOWN = 400;
const QUIET = new Set(["reports", "suggestion_requested", "attempt_launched"]);

interface Entry {
  line: JournalLine;
  told: Told;
}

export function JournalTab({ view }: { view: ExperimentDetail }) {
  const reader = useMemo(
    () => newestOf<JournalLine>(experimentUrl(view.id, `/journal?limit=${PAGE}`), MOST),
    [view.id],
  );
  const found = useResource([view.id, "journal"], (signal) => reader(signal), [view.id], 1_000);
  const metric = objectives(view)[0]?.metric ?? "value";
  const lines = found.data.value;
  const everything = query.value.get("all") === "1";
  const asked = (query.value.get("j") ?? "").toLowerCase();
  const told = useMemo(
    () => (lines ?? []).map((line) => ({ line, told: journalWords(line, metric) })),
    [lines, metric],
  );
  const shown = useMemo(
    () =>
      told
        .filter(({ line, told: words }) => (everything || !QUIET.has(line.kind)) && matches(words, asked))
        .reverse(),
    [told, everything, asked],
  );
  if (!lines) return <Awaited of={found} what="The journal" />;
  return (
    <>
      <Stale of={found} what="The journal" />
      <div class="bar">
        <input
          data-filter
          type="search"
          class="filter"
          placeholder="trial 37, stopped …   /"
          aria-label="filter the journal"
          value={query.value.get("j") ?? ""}
          onInput={(event) => amend({ j: event.currentTarget.value, from: null })}
        />
        <Switch
          label="reports and starts too"
          on={everything}
          onChange={(on) => amend({ all: on ? "1" : null, from: null })}
        />
        <span class="muted" role="status">
          {count(shown.length, "line")}
        </span>
      </div>
      {shown.length === 0 ? (
        <Empty title="No line fits">
          {asked ? "No decision has these words." : "Nothing was decided yet."}
        </Empty>
      ) : (
        <Lines shown={shown} id={view.id} />
      )}
    </>
  );
}

function matches(words: Told, asked: string): boolean {
  const trial = /^(?:trial |#)(\d+)$/.exec(asked);
  if (trial) return words.trial === Number(trial[1]);
  return asked === "" || words.sentence.toLowerCase().includes(asked);
}

/** The first line of the page that the address asks for; past the end it is the last page. */
export function firstShown(asked: string | null, lines: number): number {
  const last = Math.max(0, Math.floor((lines - 1) / SHOWN) * SHOWN);
  return Math.min(last, Math.max(0, Math.floor(Number(asked ?? 0)) || 0));
}

function Lines({ shown, id }: { shown: Entry[]; id: string }) {
  const from = firstShown(query.value.get("from"), shown.length);
  const today = serviceNow();
  return (
    <>
      <ol class="journal">
        {shown.slice(from, from + SHOWN).map(({ line, told }) => (
          <li key={line.line} class={told.tone}>
            <time dateTime={line.at} title={clock(moment(line.at))}>
              {timeOrDay(moment(line.at), today)}
            </time>
            <span class="sentence">{told.sentence}</span>
            {told.trial === null ? (
              <span />
            ) : (
              <To to={trialPath(id, told.trial)} aria-label={`trial ${told.trial}`}>
                #{told.trial}
              </To>
            )}
            <span class="muted line-number" title={line.kind}>
              {line.line}
            </span>
          </li>
        ))}
      </ol>
      <div class="row">
        {from > 0 && (
          <button type="button" onClick={() => amend({ from: String(Math.max(0, from - SHOWN)) })}>
            Newer
          </button>
        )}
        {from + SHOWN < shown.length && (
          <button type="button" onClick={() => amend({ from: String(from + SHOWN) })}>
            Older
          </button>
        )}
      </div>
    </>
  );
}
