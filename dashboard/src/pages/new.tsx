// A new experiment: a form beside its text, each kept in step; the size of the space and three draws before the start.
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { ask, experimentUrl, KeyOfBody, type Problem, read, readExactly, UNREACHABLE } from "../api/client";
import { floats, unlessSafe } from "../api/exact";
import { asProblem, mayPass, RETRY_MS, useResource } from "../api/resource";
import { caller, may } from "../api/session";
import {
  type Algorithms,
  type DryRun,
  type ExperimentDetail,
  type Json,
  own,
  type Values,
} from "../api/shapes";
import * as actions from "../parts/actions";
import { Awaited } from "../parts/awaited";
import { Empty, faultWords, To } from "../parts/controls";
import { say } from "../parts/notices";
import { experimentPath, query } from "../state/address";
import { type FieldFault, forgetDraft, type Kept, keepDraft, keptDraft, put, STARTER } from "../state/draft";
import { cell, number, numeric } from "../state/format";
import { fileOf, hiddenOf } from "./experiment-files";
import { Fields } from "./new-fields";

const LOOK_MS = 500; // after the last key

type Yaml = typeof import("yaml");

export function NewPage() {
  const from = query.value.get("from");
  if (may("create_experiment")) return <Draft key={from} from={from} />;
  return (
    <Empty title="Starting experiments is not for this token">
      {caller.value?.name} may read. What is started already stands among the <To to="/">experiments</To>; an
      admin makes a token for operators on the page of the cluster.
    </Empty>
  );
}

function Draft({ from }: { from: string | null }) {
  const library = useResource(["yaml"], () => import("yaml"), []);
  const yaml = library.data.value;
  const algorithms = useResource(["algorithms"], (signal) => read<Algorithms>("algorithms", signal), []).data
    .value;
  const origin = useResource(
    ["from", from],
    (signal) => (from ? readExactly<ExperimentDetail>(experimentUrl(from), signal) : Promise.resolve(null)),
    [],
  );
  const begun = origin.data.value;
  const text = useSignal("");
  const draft = useSignal<Values>({});
  const syntax = useSignal("");
  const faults = useSignal<readonly FieldFault[]>([]);
  const told = useSignal<DryRun | null>(null);
  const looks = useSignal(0); // at what stands there since it was written
  const hidden = useSignal<string[]>([]);
  const busy = useSignal(false);
  const keys = useMemo(() => new KeyOfBody(), []);
  const who = caller.value?.name ?? null;
  const restored = useSignal(false);
  const isWritten = useRef(false);
  const writer = useRef<string | null>(null); // null until it is known who is signed in

  const fromText = (written: string, by: Yaml) => {
    text.value = written;
    try {
      const value = by.parse(written, unlessSafe, { intAsBigInt: true, customTags: floats }) as Json;
      if (typeof value !== "object" || value === null || Array.isArray(value))
        throw new Error("an experiment is an object with fields");
      draft.value = value;
      syntax.value = "";
    } catch (error) {
      syntax.value = error instanceof Error ? error.message : String(error);
    }
  };
  const fromForm = (pointer: string, entry: Json | undefined) => {
    draft.value = put(draft.value, pointer, entry);
    if (yaml) text.value = yaml.stringify(draft.value, { customTags: floats });
    syntax.value = "";
    keep();
  };
  const keep = () => {
    isWritten.current = true;
    writer.current ??= who;
    if (writer.current !== null) keepDraft(writer.current, from, { text: text.value, asked: keys.last });
  };
  const begin = (kept: Kept | null) => {
    if (!yaml || begun === undefined) return;
    hidden.value = begun ? hiddenOf(begun) : [];
    restored.value = isWritten.current = kept !== null;
    writer.current = kept && who;
    if (kept) keys.last = kept.asked;
    const first = begun ? yaml.stringify(startingFrom(begun), { customTags: floats }) : STARTER;
    fromText(kept?.text ?? first, yaml);
  };

  // Before anybody can write.
  useLayoutEffect(() => {
    if (!isWritten.current) begin(who === null ? null : keptDraft(who, from));
    else if (writer.current === null) keep();
  }, [yaml, begun, who]);

  useEffect(() => {
    if (syntax.value || Object.keys(draft.value).length === 0) return;
    const abort = new AbortController();
    let again: ReturnType<typeof setTimeout> | undefined;
    const timer = setTimeout(async () => {
      try {
        told.value = (
          await ask<DryRun>("POST", "experiments?dry_run=true", { body: draft.value, signal: abort.signal })
        ).body;
        faults.value = [];
      } catch (error) {
        if (abort.signal.aborted) return;
        const problem = asProblem(error);
        faults.value = faultsOf(problem);
        told.value = null;
        if (mayPass(problem)) again = setTimeout(() => looks.value++, RETRY_MS);
      }
    }, LOOK_MS);
    return () => {
      clearTimeout(timer);
      clearTimeout(again);
      abort.abort();
    };
  }, [draft.value, syntax.value, looks.value]);

  const start = async () => {
    busy.value = true;
    try {
      const sent = actions.start(draft.value, keys);
      keep(); // with its key: where no answer comes, it is sent again as the same
      await sent;
      forgetDraft();
    } catch (error) {
      const problem = asProblem(error);
      faults.value = problem.faults;
      say(faultWords(problem), "bad", actions.STARTING);
    } finally {
      busy.value = false;
    }
  };
  const ready = told.value !== null && syntax.value === "" && faults.value.length === 0 && !busy.value;
  document.title = "New experiment · Tuner";
  // Nobody writes into what is about to be filled: who was quicker would begin with nothing else.
  if (!yaml) return <Awaited of={library} what="The form" />;
  if (begun === undefined) return <Awaited of={origin} what="What it begins from" />;
  return (
    <>
      <div class="page-head">
        <h1>New experiment</h1>
        {from && (
          <span class="muted">
            begun from <To to={experimentPath(from)}>{from}</To>
          </span>
        )}
        <div class="grow" />
        <button type="button" class="primary" disabled={!ready} onClick={() => void start()}>
          Start it
        </button>
      </div>
      {restored.value && (
        <p class="banner" role="status">
          This is what you had written here and not started.{" "}
          <button
            type="button"
            onClick={() => {
              forgetDraft();
              begin(null);
            }}
          >
            Begin anew
          </button>
        </p>
      )}
      {hidden.value.length > 0 && (
        <p class="banner" role="status">
          The values of {hidden.value.join(", ")} are hidden from you and not taken over: write those that its
          trials need. A clone has them.
        </p>
      )}
      <div class="columns">
        <section aria-label="Form">
          <Fields draft={draft.value} faults={faults.value} algorithms={algorithms} onChange={fromForm} />
        </section>
        <section aria-label="Text">
          <label for="yaml">The same as the experiment file</label>
          <textarea
            id="yaml"
            class="code"
            rows={28}
            spellcheck={false}
            value={text.value}
            aria-invalid={syntax.value !== ""}
            onInput={(event) => {
              if (!yaml) return;
              fromText(event.currentTarget.value, yaml);
              keep();
            }}
          />
          {syntax.value && (
            <p class="fault" role="alert">
              {syntax.value}
            </p>
          )}
          <Verdict told={told.value} faults={faults.value} syntax={syntax.value} />
        </section>
      </div>
    </>
  );
}

/** Why what was written cannot be started; of a service that is away it is found out by itself when it is back. */
export function faultsOf(problem: Problem): readonly FieldFault[] {
  if (problem.faults.length > 0) return problem.faults;
  const away = "the service does not answer; this is looked at again by itself";
  return [{ pointer: "", detail: problem.status === UNREACHABLE ? away : problem.detail }];
}

/** Another one like it: without what belongs to that one alone. */
export function startingFrom(view: ExperimentDetail): Record<string, Json> {
  const { seed: _, ...file } = fileOf(view);
  return file;
}

function Verdict({
  told,
  faults,
  syntax,
}: {
  told: DryRun | null;
  faults: readonly FieldFault[];
  syntax: string;
}) {
  if (syntax) return null;
  if (faults.length > 0)
    return (
      <ul class="faults" aria-label="mistakes">
        {faults.map((fault) => (
          <li key={fault.pointer + fault.detail} class="fault">
            <code>{fault.pointer || "the whole"}</code> {fault.detail}
          </li>
        ))}
      </ul>
    );
  if (!told)
    return (
      <p class="muted" role="status">
        It is being looked at …
      </p>
    );
  const draws = told.samples as Values[];
  const names = [...new Set(draws.flatMap((draw) => Object.keys(draw)))];
  const size = sizeOf(told);
  return (
    <div class="verdict" role="status">
      <p class="good-text">It is good. {size !== null && `The space has ${size}.`}</p>
      {draws.length > 0 && (
        <div class="scroll-x" tabIndex={0} role="region" aria-label="examples of the space">
          <table class="pairs">
            <thead>
              <tr>
                {names.map((name) => (
                  <th key={name} scope="col" class="clip">
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {draws.slice(0, 3).map((draw) => (
                <tr key={JSON.stringify(draw)}>
                  {names.map((name) => (
                    <td key={name}>{cell(own(draw, name))}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </div>
  );
}

function sizeOf(told: DryRun): string | null {
  const size = numeric(told.space_size);
  if (size === null) return null;
  return Number.isFinite(size) ? `${number(size)} different points` : "infinitely many points";
}
