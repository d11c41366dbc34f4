// The form of a new experiment: a field for what people change, each with its mistakes.
import { useSignal } from "@preact/signals";
import { exactly } from "../api/exact";
import type { Algorithm, Algorithms, Json, Values } from "../api/shapes";
import { at, type FieldFault, faultsAt } from "../state/draft";
import { rangeWords } from "../state/space";

interface FieldsProps {
  draft: Values;
  faults: readonly FieldFault[];
  algorithms: Algorithms | undefined;
  onChange(pointer: string, entry: Json | undefined): void;
}

export function Fields(props: FieldsProps) {
  const { draft, faults, algorithms, onChange } = props;
  const several = Array.isArray(draft.objective);
  const field = (pointer: string, words: string, hint = "", kind: "text" | "number" = "text") => (
    <Field key={pointer} {...{ draft, faults, onChange, pointer, words, hint, kind }} />
  );
  const by = draft.advisor ? "advisor" : "tuner";
  return (
    <div class="fields">
      {field("/name", "Name")}
      {several ? (
        <p class="note">Several objectives are written in the text.</p>
      ) : (
        <>
          {field("/objective/metric", "Metric", "what the script reports")}
          <Choice
            pointer="/objective/goal"
            words="Goal"
            value={String(at(draft, "/objective/goal") ?? "minimize")}
            options={["minimize", "maximize"]}
            faults={faults}
            onChange={onChange}
          />
        </>
      )}
      <fieldset>
        <legend>Budget</legend>
        {field("/budget/trials", "Trials", "", "number")}
        {field("/budget/parallel", "At a time", "", "number")}
        {field("/budget/duration", "Duration", "2h, 30min")}
        {field("/budget/failures", "Failures", "it stops after so many", "number")}
      </fieldset>
      <fieldset>
        <legend>Algorithms</legend>
        <AlgorithmFields
          pointer={`/${by}`}
          words={by === "advisor" ? "Advisor" : "Tuner"}
          list={by === "advisor" ? algorithms?.advisors : algorithms?.tuners}
          {...props}
        />
        {by === "tuner" && (
          <AlgorithmFields
            pointer="/assessor"
            words="Assessor"
            list={algorithms?.assessors}
            none
            {...props}
          />
        )}
      </fieldset>
      <fieldset>
        <legend>Search space</legend>
        <SpaceFields {...props} />
      </fieldset>
      <fieldset>
        <legend>Trial</legend>
        <Field
          draft={draft}
          faults={faults}
          pointer="/trial/command"
          words="Command"
          hint="python train.py"
          kind="text"
          onChange={onChange}
        />
        {field("/trial/resources/cpus", "Cores", "of each trial", "number")}
        {field("/trial/resources/gpus", "GPUs", "a number, auto, all")}
        {field("/trial/max_duration", "At most", "2h")}
      </fieldset>
    </div>
  );
}

function Faults({ faults, pointer }: { faults: readonly FieldFault[]; pointer: string }) {
  const found = faultsAt(faults, pointer);
  return found.length > 0 ? (
    <span class="fault" id={`fault${pointer}`}>
      {found.map((fault) => fault.detail).join("; ")}
    </span>
  ) : null;
}

function entryOf(text: string, kind: "text" | "number"): Json | undefined {
  if (text.trim() === "") return undefined;
  return kind === "number" && !Number.isNaN(Number(text)) ? Number(text) : text;
}

function shown(value: Json | undefined): string {
  if (value === undefined || value === null) return "";
  if (Array.isArray(value) && value.every((word) => typeof word === "string")) return value.join(" ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function Field({
  draft,
  faults,
  pointer,
  words,
  hint,
  kind,
  onChange,
}: {
  draft: Values;
  faults: readonly FieldFault[];
  pointer: string;
  words: string;
  hint: string;
  kind: "text" | "number";
  onChange: FieldsProps["onChange"];
}) {
  const id = `field${pointer}`;
  const bad = faultsAt(faults, pointer).length > 0;
  return (
    <div class="field">
      <label for={id}>{words}</label>
      <input
        id={id}
        value={shown(at(draft, pointer))}
        placeholder={hint}
        inputMode={kind === "number" ? "decimal" : "text"}
        aria-invalid={bad}
        aria-describedby={bad ? `fault${pointer}` : undefined}
        onChange={(event) => onChange(pointer, entryOf(event.currentTarget.value, kind))}
      />
      <Faults faults={faults} pointer={pointer} />
    </div>
  );
}

function Choice({
  pointer,
  words,
  value,
  options,
  faults,
  onChange,
  meaning,
}: {
  pointer: string;
  words: string;
  value: string;
  options: readonly string[];
  faults: readonly FieldFault[];
  meaning?: string | undefined;
  onChange: FieldsProps["onChange"];
}) {
  const id = `field${pointer}`;
  return (
    <div class="field">
      <label for={id}>{words}</label>
      <select
        id={id}
        value={value}
        onChange={(event) => onChange(pointer, event.currentTarget.value || undefined)}
      >
        {options.includes(value) ? null : <option value={value}>{value || "none"}</option>}
        {options.map((option) => (
          <option key={option} value={option}>
            {option || "none"}
          </option>
        ))}
      </select>
      {meaning && <span class="hint-text">{meaning}</span>}
      <Faults faults={faults} pointer={pointer} />
    </div>
  );
}

function AlgorithmFields({
  pointer,
  words,
  list,
  none,
  draft,
  faults,
  onChange,
}: FieldsProps & { pointer: string; words: string; list: Algorithm[] | undefined; none?: boolean }) {
  const given = at(draft, pointer);
  const name =
    typeof given === "string"
      ? given
      : shown(at(draft, `${pointer}/name`) ?? at(draft, `${pointer}/class`)) || (none ? "" : "auto");
  const found = list?.find((one) => one.name === name);
  const names = [...(none ? [""] : []), ...(list?.map((one) => one.name) ?? [])];
  if (!none && !names.includes("auto")) names.unshift("auto");
  const set = (option: string, entry: Json | undefined) => {
    const args = { ...((at(draft, `${pointer}/args`) ?? {}) as Values) };
    if (entry === undefined) delete args[option];
    else args[option] = entry;
    onChange(pointer, { name, ...(Object.keys(args).length > 0 ? { args } : {}) });
  };
  return (
    <>
      <Choice
        pointer={pointer}
        words={words}
        value={name}
        options={names}
        faults={faults.filter((fault) => !fault.pointer.startsWith(`${pointer}/args/`))}
        meaning={found?.meaning}
        onChange={(where, entry) => onChange(where, entry)}
      />
      {found && found.options.length > 0 && (
        <details class="options">
          <summary>options of {found.name}</summary>
          {found.options.map((option) => (
            <div class="field" key={option.name}>
              <label for={`field${pointer}/args/${option.name}`}>{option.name}</label>
              <input
                id={`field${pointer}/args/${option.name}`}
                value={shown(at(draft, `${pointer}/args/${option.name}`))}
                placeholder={shown(option.default)}
                onChange={(event) => set(option.name, entered(event.currentTarget.value))}
              />
              <span class="hint-text">{option.meaning}</span>
              <Faults faults={faults} pointer={`${pointer}/args/${option.name}`} />
            </div>
          ))}
        </details>
      )}
    </>
  );
}

function entered(text: string): Json | undefined {
  if (text.trim() === "") return undefined;
  try {
    return exactly(text) as Json;
  } catch {
    return text;
  }
}

function SpaceFields({ draft, faults, onChange }: FieldsProps) {
  const name = useSignal("");
  const space = (at(draft, "/search_space") ?? {}) as Values;
  const pointerOf = (parameter: string) =>
    `/search_space/${parameter.replace(/~/g, "~0").replace(/\//g, "~1")}`;
  return (
    <>
      {Object.entries(space).map(([parameter, range]) => (
        <div class="field" key={parameter}>
          <label for={`field${pointerOf(parameter)}`} class="clip" title={rangeWords(range)}>
            {parameter}
          </label>
          <div class="row">
            <input
              id={`field${pointerOf(parameter)}`}
              class="grow"
              value={JSON.stringify(range)}
              aria-invalid={faultsAt(faults, pointerOf(parameter)).length > 0}
              onChange={(event) => onChange(pointerOf(parameter), entered(event.currentTarget.value))}
            />
            <button
              type="button"
              class="icon"
              aria-label={`Take out ${parameter}`}
              title="Take out"
              onClick={() => onChange(pointerOf(parameter), undefined)}
            >
              ×
            </button>
          </div>
          <span class="hint-text clip">{rangeWords(range)}</span>
          <Faults faults={faults} pointer={pointerOf(parameter)} />
        </div>
      ))}
      <Faults faults={faults.filter((fault) => fault.pointer === "/search_space")} pointer="/search_space" />
      <div class="row">
        <input
          aria-label="name of a new parameter"
          placeholder="another parameter"
          value={name.value}
          onInput={(event) => {
            name.value = event.currentTarget.value;
          }}
        />
        {(
          [
            ["number", { type: "float", low: 0, high: 1 }],
            ["whole number", { type: "int", low: 1, high: 10 }],
            ["choice", { type: "categorical", choices: ["a", "b"] }],
          ] as [string, Values][]
        ).map(([words, range]) => (
          <button
            key={words}
            type="button"
            class="small"
            disabled={!name.value.trim() || Object.hasOwn(space, name.value.trim())}
            onClick={() => {
              onChange(pointerOf(name.value.trim()), range);
              name.value = "";
            }}
          >
            {words}
          </button>
        ))}
      </div>
    </>
  );
}
