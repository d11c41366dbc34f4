// A trial of one's own, and a clone.
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { experimentUrl, KeyOfBody, type Problem, readExactly } from "../api/client";
import { exactly, float, whole } from "../api/exact";
import { asProblem, useResource } from "../api/resource";
import { type ExperimentDetail, type Json, own, type Values } from "../api/shapes";
import { type ParameterForm, parametersOf, rangeWords } from "../state/space";
import * as actions from "./actions";
import { Awaited } from "./awaited";
import { faultWords } from "./controls";
import { Dialog } from "./dialog";
import { numberOf } from "./entered";
import { AsLeft, useWritten } from "./written";

const ADDING = "Add a trial of your own";

/** What a field holds as a value; a text that is no JSON is that text. */
export function typed(text: string, form: ParameterForm): Json {
  if (form.kind === "float" || form.kind === "int") {
    const value = Number(text);
    if (text.trim() === "" || Number.isNaN(value)) return text;
    return (form.kind === "float" ? float(value) : whole(text.trim(), value)) as Json;
  }
  const choice = form.choices.find((one) => (typeof one === "string" ? one : JSON.stringify(one)) === text);
  if (choice !== undefined) return choice;
  try {
    return exactly(text) as Json;
  } catch {
    return text;
  }
}

function written(value: Json | undefined): string {
  if (value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** The parameters of what stands in the fields; one that is empty is not given. */
export function givenOf(forms: readonly ParameterForm[], texts: Readonly<Record<string, string>>): Values {
  const given = forms.flatMap((form): [string, Json][] => {
    const text = own(texts, form.name) ?? "";
    return text === "" ? [] : [[form.name, typed(text, form)]];
  });
  return Object.fromEntries(given);
}

export function AddTrial({ view, onClose }: { view: ExperimentDetail; onClose(): void }) {
  const found = useResource(
    [view.id, "to add to"],
    (signal) => readExactly<ExperimentDetail>(experimentUrl(view.id), signal),
    [],
  );
  const exact = found.data.value;
  if (exact) return <TrialForm view={exact} onClose={onClose} />;
  return (
    <Dialog title={ADDING} onClose={onClose}>
      <Awaited of={found} what="The search space" />
    </Dialog>
  );
}

function TrialForm({ view, onClose }: { view: ExperimentDetail; onClose(): void }) {
  const forms = parametersOf(view.search_space);
  const begun = view.best?.parameters ?? {};
  const values = useSignal<Record<string, string>>(
    Object.fromEntries(forms.map((form) => [form.name, written(own(begun, form.name))])),
  );
  const outside = useSignal(false);
  const entry = useWritten<{ values: Record<string, string>; outside: boolean }>(
    `a trial of ${view.id}`,
    (kept) => {
      values.value = { ...values.value, ...kept.values };
      outside.value = kept.outside;
    },
  );
  const keep = () => entry.keep({ values: values.value, outside: outside.value });
  const close = () => {
    entry.forget();
    onClose();
  };
  const problem = useSignal<Problem | null>(null);
  const busy = useSignal(false);
  const add = async () => {
    problem.value = null;
    busy.value = true;
    try {
      await actions.addTrial(view.id, givenOf(forms, values.value), outside.value);
      close();
    } catch (error) {
      problem.value = asProblem(error);
    } finally {
      busy.value = false;
    }
  };
  const faultOf = (name: string) =>
    problem.value?.faults.find((fault) =>
      fault.pointer.split("/").includes(name.replace(/~/g, "~0").replace(/\//g, "~1")),
    )?.detail;
  const others =
    problem.value?.faults.filter((fault) => !forms.some((form) => faultOf(form.name) === fault.detail)) ?? [];
  return (
    <Dialog title={ADDING} onClose={close}>
      <p class="muted">
        It uses none of the budget, and the tuner learns what it comes to.
        {view.best && !entry.isAsLeft.value && " The fields begin with the best parameters."}
      </p>
      <AsLeft of={entry} />
      <form
        class="fields"
        onSubmit={(event) => {
          event.preventDefault();
          void add();
        }}
      >
        {forms.map((form) => (
          <ParameterField
            key={form.name}
            form={form}
            value={own(values.value, form.name) ?? ""}
            fault={faultOf(form.name)}
            onInput={(text) => {
              values.value = { ...values.value, [form.name]: text };
              keep();
            }}
          />
        ))}
        <label class="check">
          <input
            type="checkbox"
            checked={outside.value}
            onChange={(event) => {
              outside.value = event.currentTarget.checked;
              keep();
            }}
          />{" "}
          outside the search space, too
        </label>
        {problem.value && (others.length > 0 || problem.value.faults.length === 0) && (
          <p class="fault" role="alert">
            {others.length > 0
              ? others.map((fault) => `${fault.pointer} ${fault.detail}`).join("; ")
              : problem.value.detail}
          </p>
        )}
        <div class="dialog-actions">
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={busy.value}>
            Add it
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function ParameterField({
  form,
  value,
  fault,
  onInput,
}: {
  form: ParameterForm;
  value: string;
  fault: string | undefined;
  onInput(text: string): void;
}) {
  const id = `parameter-${form.name}`;
  return (
    <div class="field">
      <label for={id} class="clip" title={form.name}>
        {form.name}
      </label>
      {form.kind === "choice" || form.kind === "bool" ? (
        <select
          id={id}
          value={value}
          aria-invalid={fault !== undefined}
          onChange={(event) => onInput(event.currentTarget.value)}
        >
          <option value="">not given</option>
          {form.choices.map((choice) => (
            <option key={written(choice)} value={written(choice)}>
              {written(choice)}
            </option>
          ))}
        </select>
      ) : (
        <input
          id={id}
          value={value}
          aria-invalid={fault !== undefined}
          inputMode={form.kind === "other" ? "text" : "decimal"}
          onInput={(event) => onInput(event.currentTarget.value)}
        />
      )}
      <span class="hint-text clip" title={rangeWords(form.range)}>
        {rangeWords(form.range)}
      </span>
      {fault && (
        <span class="fault" role="alert">
          {fault}
        </span>
      )}
    </div>
  );
}

/** What a clone is asked for with; a field that is empty is left out. Raises a Problem where a number is none. */
export function cloneOf(name: string, trials: string, seed: string): Values {
  const body: Values = { name };
  if (seed.trim()) body.seed = numberOf(seed);
  if (trials.trim()) body.budget = { trials: numberOf(trials) };
  return body;
}

/** What stands in its fields, and what it was asked for with. */
interface Cloned {
  name: string;
  trials: string;
  seed: string;
  asked: [string, string];
}

export function CloneDialog({ view, onClose }: { view: ExperimentDetail; onClose(): void }) {
  const name = useSignal(view.name);
  const seed = useSignal("");
  const trials = useSignal(String(view.budget.trials ?? ""));
  const fault = useSignal("");
  const busy = useSignal(false);
  const keys = useMemo(() => new KeyOfBody(), []);
  const entry = useWritten<Cloned>(`a clone of ${view.id}`, (kept) => {
    name.value = kept.name;
    trials.value = kept.trials;
    seed.value = kept.seed;
    keys.last = kept.asked;
  });
  const keep = () =>
    entry.keep({ name: name.value, trials: trials.value, seed: seed.value, asked: keys.last });
  const close = () => {
    entry.forget();
    onClose();
  };
  const start = async () => {
    fault.value = "";
    busy.value = true;
    try {
      const sent = actions.clone(view.id, cloneOf(name.value, trials.value, seed.value), keys);
      keep(); // with its key: where no answer comes, it is sent again as the same
      await sent;
      close();
    } catch (error) {
      fault.value = faultWords(asProblem(error));
    } finally {
      busy.value = false;
    }
  };
  return (
    <Dialog title={`Clone ${view.name}`} onClose={close}>
      <p class="muted">The same code and settings, the newest search space, no results, and another seed.</p>
      <AsLeft of={entry} />
      <form
        class="fields"
        onSubmit={(event) => {
          event.preventDefault();
          void start();
        }}
      >
        <div class="field">
          <label for="clone-name">Name</label>
          <input
            id="clone-name"
            value={name.value}
            onInput={(event) => {
              name.value = event.currentTarget.value;
              keep();
            }}
          />
        </div>
        <div class="field">
          <label for="clone-trials">Trials</label>
          <input
            id="clone-trials"
            inputMode="numeric"
            value={trials.value}
            onInput={(event) => {
              trials.value = event.currentTarget.value;
              keep();
            }}
          />
        </div>
        <div class="field">
          <label for="clone-seed">Seed</label>
          <input
            id="clone-seed"
            inputMode="numeric"
            placeholder="another one"
            value={seed.value}
            onInput={(event) => {
              seed.value = event.currentTarget.value;
              keep();
            }}
          />
        </div>
        {fault.value && (
          <p class="fault" role="alert">
            {fault.value}
          </p>
        )}
        <div class="dialog-actions">
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={busy.value}>
            Start the clone
          </button>
        </div>
      </form>
    </Dialog>
  );
}
