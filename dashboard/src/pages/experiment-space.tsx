// The search space: what it is, what it was, and another one from now on.
import { useSignal } from "@preact/signals";
import { useMemo, useRef } from "preact/hooks";
import { ask, experimentUrl } from "../api/client";
import { exactly } from "../api/exact";
import { newestOf } from "../api/growing";
import { touch } from "../api/live";
import { asProblem, useResource } from "../api/resource";
import { may } from "../api/session";
import { type ExperimentDetail, own, type SpaceRevision, type Values } from "../api/shapes";
import { Awaited, Stale } from "../parts/awaited";
import { faultWords } from "../parts/controls";
import { say, settled } from "../parts/notices";
import { AsLeft, useWritten } from "../parts/written";
import { clock, count, moment } from "../state/format";
import { rangeWords } from "../state/space";

const MOST = 200; // revisions that are shown; each may be large

export function SpaceTab({ view }: { view: ExperimentDetail }) {
  const { id } = view;
  const reader = useMemo(
    () => newestOf<SpaceRevision>(experimentUrl(id, "/search-space/revisions"), MOST),
    [id],
  );
  const found = useResource([id, "revisions"], (signal) => reader(signal), [id], 1_000);
  const revisions = found.data.value;
  if (!revisions) return <Awaited of={found} what="The search space" />;
  const newest = revisions[revisions.length - 1];
  return (
    <div class="columns">
      <section>
        <Stale of={found} what="The search space" />
        <h2>Searched now</h2>
        <SpaceTable space={newest?.search_space ?? view.search_space} />
        {may("change_search_space") && <Editor id={id} />}
      </section>
      <section>
        <h2>
          {newest?.revision === 1 ? "It has not been changed" : count(newest?.revision ?? 0, "revision")}
        </h2>
        <ol class="revisions" reversed>
          {[...revisions].reverse().map((revision, place, all) => (
            <Revision key={revision.revision} revision={revision} before={all[place + 1]} />
          ))}
        </ol>
      </section>
    </div>
  );
}

export function SpaceTable({ space }: { space: Values }) {
  return (
    <table class="pairs">
      <tbody>
        {Object.entries(space).map(([name, range]) => (
          <tr key={name}>
            <th scope="row" class="clip" title={name}>
              {name}
            </th>
            <td>{name === "constraints" ? JSON.stringify(range) : rangeWords(range)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export interface SpaceChange {
  name: string;
  before: string | null;
  after: string | null;
}

export function spaceChanges(before: Values, after: Values): SpaceChange[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  const text = (space: Values, name: string) => {
    const range = own(space, name);
    return range === undefined ? null : rangeWords(range);
  };
  return names
    .map((name) => ({ name, before: text(before, name), after: text(after, name) }))
    .filter((one) => JSON.stringify(own(before, one.name)) !== JSON.stringify(own(after, one.name)));
}

function Revision({ revision, before }: { revision: SpaceRevision; before: SpaceRevision | undefined }) {
  const changes = before ? spaceChanges(before.search_space, revision.search_space) : [];
  return (
    <li>
      <strong>{revision.revision > 1 ? `Changed at line ${revision.line}` : "As it began"}</strong>{" "}
      <span class="muted">{clock(moment(revision.at))}</span>
      {changes.map((one) => (
        <div key={one.name} class="difference">
          <code>{one.name}</code>
          {one.before !== null && <del>{one.before}</del>}
          {one.after !== null ? <ins>{one.after}</ins> : <span class="muted"> taken out</span>}
        </div>
      ))}
      {before && changes.length === 0 && <div class="muted">nothing is different</div>}
    </li>
  );
}

function Editor({ id }: { id: string }) {
  const text = useSignal<string | null>(null);
  const fault = useSignal("");
  const beginning = `the space of ${id}`;
  const written = useWritten<{ text: string; tag: string | null }>(beginning, (kept) => {
    tag.current = kept.tag; // where the space is another one now, saving says so
    text.value = kept.text;
  });
  const tag = useRef<string | null>(null); // of the space that whoever writes has seen
  const readNewest = async (): Promise<SpaceRevision> => {
    const { body, etag } = await ask<SpaceRevision>("GET", experimentUrl(id, "/search-space"), {
      exact: true,
    });
    tag.current = etag;
    return body;
  };
  const begin = async () => {
    try {
      text.value = JSON.stringify((await readNewest()).search_space, null, 2);
      settled(beginning);
    } catch (error) {
      say(asProblem(error).detail, "bad", beginning);
    }
  };
  if (text.value === null)
    return (
      <button type="button" onClick={() => void begin()}>
        Change the space
      </button>
    );
  const close = () => {
    written.forget();
    text.value = null;
    fault.value = "";
  };
  const save = async () => {
    fault.value = "";
    try {
      const given = exactly(text.value ?? "") as Values;
      await ask("PUT", experimentUrl(id, "/search-space"), {
        body: { search_space: given },
        ifMatch: tag.current,
      });
      say("This space holds for every suggestion from now on");
      close();
      touch(id);
    } catch (error) {
      fault.value =
        error instanceof SyntaxError ? `this is not JSON: ${error.message}` : faultWords(asProblem(error));
      if (asProblem(error).status !== 412) return;
      touch(id);
      await readNewest().catch(() => undefined); // without it, saving is refused again
      written.keep({ text: text.value ?? "", tag: tag.current });
      fault.value =
        "the space was changed after you began: the one above is searched now; saving again puts yours in its place";
    }
  };
  return (
    <form
      class="editor"
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <AsLeft of={written} />
      <label for="space-text">
        The whole space, as JSON. What was tried before is kept, and used where it still fits.
      </label>
      <textarea
        id="space-text"
        class="code"
        rows={16}
        spellcheck={false}
        value={text.value}
        aria-invalid={fault.value !== ""}
        onInput={(event) => {
          text.value = event.currentTarget.value;
          written.keep({ text: text.value, tag: tag.current });
        }}
      />
      {fault.value && (
        <p class="fault" role="alert">
          {fault.value}
        </p>
      )}
      <div class="row">
        <button type="submit" class="primary">
          Search this space from now on
        </button>
        <button type="button" onClick={close}>
          Cancel
        </button>
      </div>
    </form>
  );
}
