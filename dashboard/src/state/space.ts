// What a search space says of its parameters, as far as plots and forms need it.

import { WholeFloat } from "../api/exact";
import type { Json, Values } from "../api/shapes";
import { isLogRange } from "../plots/scales";
import { numeric } from "./format";

export interface ParameterForm {
  name: string;
  kind: "float" | "int" | "choice" | "bool" | "other";
  low: number | null;
  high: number | null;
  choices: Json[];
  log: boolean;
  range: Json;
}

/** The column of a parameter that analyses name by its path: `layer/conv/kernel` is that of `layer.kernel`. */
export function columnOfPath(path: string): string {
  return path
    .split("/")
    .filter((_, place) => place % 2 === 0) // between them: the options that hold the inner ones
    .map(unescaped)
    .join(".");
}

/** As a person reads it. */
export function labelOfPath(path: string): string {
  return path.split("/").map(unescaped).join(" / ");
}

function unescaped(part: string): string {
  return part.replaceAll("~1", "/").replaceAll("~0", "~");
}

export function parametersOf(space: Values): ParameterForm[] {
  return Object.entries(space)
    .filter(([name]) => name !== "constraints")
    .map(([name, range]) => formOf(name, range));
}

function formOf(name: string, range: Json): ParameterForm {
  const found = (typeof range === "object" && range !== null && !Array.isArray(range) ? range : {}) as Values;
  const type = String(found._type ?? found.type ?? "");
  const ends = Array.isArray(found._value) ? found._value : [];
  const options = (found.choices ?? (type === "choice" ? found._value : null)) as Json;
  const form: ParameterForm = {
    name,
    kind: "other",
    low: numberOr(found.low ?? ends[0]),
    high: numberOr(found.high ?? ends[1]),
    choices: [],
    log: isLogRange(range),
    range,
  };
  if (Array.isArray(options)) {
    const nested = options.some(
      (option: unknown) => typeof option === "object" && option !== null && !(option instanceof WholeFloat),
    );
    return {
      ...form,
      kind: nested || type === "permutation" || type === "subset" ? "other" : "choice",
      choices: options,
    };
  }
  if (type === "bool") return { ...form, kind: "bool", choices: [true, false] };
  if (type === "int" || type === "randint") return { ...form, kind: "int" };
  if (type === "float" || type.includes("uniform") || type.includes("normal"))
    return { ...form, kind: "float" };
  return form;
}

function numberOr(value: Json | undefined): number | null {
  return numeric(value);
}

/** Which of the columns of trials are to be seen by their logarithm. */
export function logNames(space: Values): Set<string> {
  const found = new Set<string>();
  const walk = (ranges: Values, prefix: string): void => {
    for (const [name, range] of Object.entries(ranges)) {
      if (isLogRange(range)) found.add(prefix + name);
      const options =
        typeof range === "object" && range !== null && !Array.isArray(range)
          ? ((range as Values)._value ?? (range as Values).choices)
          : null;
      if (Array.isArray(options))
        for (const option of options)
          if (typeof option === "object" && option !== null && !Array.isArray(option))
            walk(option, `${prefix}${name}.`);
    }
  };
  walk(space, "");
  return found;
}

/** One range as a person would say it. */
export function rangeWords(range: Json): string {
  const form = formOf("", range);
  const log = form.log ? ", by its logarithm" : "";
  if (form.kind === "choice")
    return `one of ${form.choices.map((choice) => (typeof choice === "string" ? choice : JSON.stringify(choice))).join(", ")}`;
  if (form.kind === "bool") return "true or false";
  const type =
    typeof range === "object" && range !== null && !Array.isArray(range)
      ? String((range as Values)._type ?? (range as Values).type)
      : "";
  if (type.includes("normal")) return `around ${form.low} by ${form.high}${log}`;
  if (form.kind === "int") return `a whole number ${endsOf(range, form)}${log}`;
  if (form.kind === "float") return `from ${form.low} to ${form.high}${log}`;
  return JSON.stringify(range);
}

/** By their digits, which may be more than a browser's number holds. */
function endsOf(range: Json, form: ParameterForm): string {
  const { low, high } = range as Record<string, unknown>;
  const shown = (end: unknown, about: number | null) => (typeof end === "bigint" ? end : about);
  return `from ${shown(low, form.low)} to ${shown(high, form.high)}`;
}
