// A set of parameters as one would type it elsewhere.
import type { Json, Values } from "../api/shapes";
import { flatten } from "../state/columns";

export type Form = "arguments" | "environment" | "yaml" | "python" | "json";

export function write(values: Values, form: Form): string {
  switch (form) {
    case "arguments":
      return flat(values)
        .map(([name, value]) => shell(`--${name}=${plain(value)}`))
        .join(" ");
    case "environment":
      return flat(values)
        .map(([name, value]) => `${name.toUpperCase().replace(/\W+/g, "_")}=${shell(plain(value))}`)
        .join("\n");
    case "yaml":
      return Object.entries(values)
        .map(([name, value]) => `${yamlText(name)}: ${yamlValue(value)}`)
        .join("\n");
    case "python":
      return python(values);
    case "json":
      return JSON.stringify(values, null, 2);
  }
}

function flat(values: Values): [string, unknown][] {
  const found: [string, unknown][] = [];
  flatten(values, "", (name, value) => found.push([name, value]));
  return found;
}

function plain(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** One word of a shell, whatever it holds. */
export function shell(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, `'\\''`)}'`;
}

function yamlText(text: string): string {
  return /^[A-Za-z_][\w.-]*$/.test(text) && !/^(true|false|null|yes|no|on|off|y|n)$/i.test(text)
    ? text
    : JSON.stringify(text);
}

function yamlValue(value: Json): string {
  if (typeof value === "string") return yamlText(value);
  return JSON.stringify(value); // every JSON value is YAML
}

export function python(value: Json): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object")
    return `{${Object.entries(value)
      .map(([name, one]) => `${JSON.stringify(name)}: ${python(one)}`)
      .join(", ")}}`;
  return JSON.stringify(value);
}
