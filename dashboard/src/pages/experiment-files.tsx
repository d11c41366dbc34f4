// What the experiment was asked for, people's notes and tags, and everything to take away.
import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { experimentUrl, readExactly } from "../api/client";
import { floats } from "../api/exact";
import { asProblem, useResource } from "../api/resource";
import { may } from "../api/session";
import type { ExperimentBody, ExperimentDetail, Json, Values } from "../api/shapes";
import { change } from "../parts/actions";
import { Awaited } from "../parts/awaited";
import { copy, EditInPlace, faultWords, To } from "../parts/controls";
import { Download } from "../parts/download";
import { Begun, numberOf } from "../parts/entered";
import { say } from "../parts/notices";
import { AsLeft, useWritten } from "../parts/written";
import { save } from "../plots/figure";
import { experimentPath } from "../state/address";
import { count } from "../state/format";

const ASKED = [
  "name",
  "project",
  "note",
  "tags",
  "objective",
  "budget",
  "search_space",
  "tuner",
  "assessor",
  "advisor",
  "trial",
  "seed",
  "deterministic",
  "workers",
  "warm_start",
  "algorithm_timeout",
  "quota_group",
  "priority",
  "preemptible",
  "executor",
  "on_end",
  "on_pause",
  "on_failures",
] as const satisfies readonly (keyof ExperimentDetail & keyof ExperimentBody)[];

const LOOK_MS = 3_000; // between two reads of what hardly changes

/** The places of values that are for admins alone: who is shown null there may not send it either. */
const HIDDEN = [
  ["trial", "environment"],
  ["executor", "runtime_env"],
] as const;

/** The names of what the file lacks because its values are hidden from who is signed in. */
export function hiddenOf(view: ExperimentDetail): string[] {
  return HIDDEN.flatMap(([part, name]) =>
    Object.entries(valuesAt(view[part], name) ?? {}).flatMap(([key, value]) => (value === null ? [key] : [])),
  );
}

function valuesAt(part: unknown, name: string): Values | null {
  return (part as Record<string, Values | null> | null)?.[name] ?? null;
}

function withoutHidden(view: ExperimentDetail, asked: keyof ExperimentDetail): Json {
  const value = view[asked] as Json;
  const name = HIDDEN.find(([part]) => part === asked)?.[1];
  const there = name ? valuesAt(value, name) : null;
  if (!name || !there) return value;
  const known = Object.entries(there).filter(([, one]) => one !== null);
  return { ...(value as Values), [name]: Object.fromEntries(known) };
}

/** The experiment file that it came from, every default filled in, without what is hidden from who is signed in. */
export function fileOf(view: ExperimentDetail): Record<string, Json> {
  const entries = ASKED.map((name): [string, Json] => [name, withoutHidden(view, name)]);
  return Object.fromEntries(
    entries.filter(
      ([, value]) => value !== null && !(Array.isArray(value) && value.length === 0) && value !== "",
    ),
  );
}

export function FilesTab({ view }: { view: ExperimentDetail }) {
  const yaml = useResource(["yaml"], () => import("yaml"), []).data.value;
  const found = useResource(
    [view.id, "exact"],
    (signal) => readExactly<ExperimentDetail>(experimentUrl(view.id), signal),
    [view.id],
    LOOK_MS,
  );
  const exact = found.data.value;
  const text = yaml && exact ? yaml.stringify(fileOf(exact), { customTags: floats }) : "";
  const hidden = hiddenOf(view);
  return (
    <div class="columns">
      <section>
        <h2>Notes</h2>
        <Note view={view} />
        <h3>Tags</h3>
        <EditInPlace
          by="change_experiment"
          label="tags"
          value={view.tags.join(", ")}
          hint="one, another"
          wide
          shown={
            view.tags.length > 0 ? (
              <span class="tags">
                {view.tags.map((tag) => (
                  <span key={tag} class="tag">
                    {tag}
                  </span>
                ))}
              </span>
            ) : (
              <span class="muted">none</span>
            )
          }
          onSave={(entered) =>
            change(view.id, {
              tags: entered
                .split(",")
                .map((tag) => tag.trim())
                .filter(Boolean),
            })
          }
        />
        <h3>Priority</h3>
        <EditInPlace
          by="change_experiment"
          label="priority"
          type="number"
          value={String(view.priority)}
          shown={String(view.priority)}
          onSave={async (entered) => change(view.id, { priority: numberOf(entered) })}
        />
        <h2>Everything of it</h2>
        <ul class="plain">
          <li>
            <Download path={experimentUrl(view.id, "/export?format=csv")} name={`${view.id}.csv`}>
              Trials as CSV
            </Download>
          </li>
          <li>
            <Download path={experimentUrl(view.id, "/export?format=json")} name={`${view.id}.json`}>
              Trials as JSON
            </Download>
          </li>
          <li>
            <Download
              path={experimentUrl(view.id, "/export?format=csv&metrics=true")}
              name={`${view.id}-metrics.csv`}
            >
              Every report as CSV
            </Download>
          </li>
        </ul>
        {view.warm_start.length > 0 && (
          <p>
            Its algorithms began with the results of{" "}
            {view.warm_start.map((id) => (
              <To key={id} to={experimentPath(id)}>
                {id}{" "}
              </To>
            ))}
          </p>
        )}
        {Object.entries(view.chosen).map(([kind, why]) => (
          <p key={kind} class="note">
            The {kind} was chosen: {why}
          </p>
        ))}
      </section>
      <section>
        {view.left_out.length > 0 && (
          <details class="hint">
            <summary>
              {count(view.left_out.length, "variable")} of the service{" "}
              {view.left_out.length === 1 ? "is" : "are"} not passed to trials
            </summary>
            <p>{view.left_out.join(", ")}. The field pass_environment of trial names those that are.</p>
          </details>
        )}
        <h2>The experiment file</h2>
        <div class="row">
          <button type="button" disabled={!text} onClick={() => void copy(text, "The file is copied")}>
            Copy
          </button>
          <button type="button" disabled={!text} onClick={() => save(`${view.name}.yaml`, "text/yaml", text)}>
            Download
          </button>
          {may("create_experiment") && (
            <To class="button" to={`/new?from=${encodeURIComponent(view.id)}`}>
              Start another from it
            </To>
          )}
        </div>
        {hidden.length > 0 && (
          <p class="note">Hidden from you, and not in the file: the values of {hidden.join(", ")}.</p>
        )}
        {text ? (
          <pre class="file" tabIndex={0}>
            {text}
          </pre>
        ) : (
          <Awaited of={found} what="The file" />
        )}
      </section>
    </div>
  );
}

function Note({ view }: { view: ExperimentDetail }) {
  const text = useSignal<string | null>(null);
  const fault = useSignal("");
  const begun = useRef(new Begun(view.note));
  const written = useWritten<{ text: string; known: string }>(`the note of ${view.id}`, (kept) => {
    begun.current = new Begun(kept.known);
    text.value = kept.text;
  });
  const close = () => {
    written.forget();
    text.value = null;
  };
  const keep = async () => {
    try {
      begun.current.guard(view.note);
      await change(view.id, { note: text.value ?? "" });
      close();
      say("The note is kept");
    } catch (error) {
      fault.value = faultWords(asProblem(error));
    }
  };
  if (text.value === null)
    return (
      <>
        {view.note ? (
          <p class="note-text">{view.note}</p>
        ) : (
          <p class="muted">
            {may("change_experiment") ? "What this search is for, what came out of it." : "none"}
          </p>
        )}
        {may("change_experiment") && (
          <button
            type="button"
            onClick={() => {
              begun.current = new Begun(view.note);
              fault.value = "";
              text.value = view.note;
            }}
          >
            {view.note ? "Change the note" : "Write a note"}
          </button>
        )}
      </>
    );
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void keep();
      }}
    >
      <AsLeft of={written} />
      <textarea
        aria-label="note"
        rows={8}
        value={text.value}
        onInput={(event) => {
          text.value = event.currentTarget.value;
          written.keep({ text: text.value, known: begun.current.known });
        }}
      />
      {fault.value && (
        <p class="fault note-text" role="alert">
          {fault.value}
        </p>
      )}
      <div class="row">
        <button type="submit" class="primary">
          Save
        </button>
        <button type="button" onClick={close}>
          Cancel
        </button>
      </div>
    </form>
  );
}
