// The address holds the whole view: the path says which page, the query everything that is filtered, sorted, selected.
import { computed, signal } from "@preact/signals";

export type Route =
  | { page: "experiments" }
  | { page: "experiment"; id: string }
  | { page: "trial"; id: string; number: number }
  | { page: "compare" | "cluster" | "new" | "login" }
  | { page: "nowhere"; path: string };

const NAMED = ["compare", "cluster", "new", "login"] as const;

export function parseRoute(path: string): Route {
  const parts = path.split("/").filter(Boolean).map(decoded);
  if (parts.length === 0 || (parts.length === 1 && parts[0] === "experiments"))
    return { page: "experiments" };
  const named = NAMED.find((name) => name === parts[0]);
  if (parts.length === 1 && named) return { page: named };
  if (parts[0] !== "experiments") return { page: "nowhere", path };
  if (parts.length === 2) return { page: "experiment", id: parts[1] };
  const number = Number(parts[3]);
  if (parts.length === 4 && parts[2] === "trials" && Number.isInteger(number) && number > 0)
    return { page: "trial", id: parts[1], number };
  return { page: "nowhere", path };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function experimentPath(id: string, query: Record<string, string> = {}): string {
  return `/experiments/${encodeURIComponent(id)}${asQuery(query)}`;
}

export function trialPath(id: string, number: number): string {
  return `/experiments/${encodeURIComponent(id)}/trials/${number}`;
}

export function asQuery(query: Record<string, string | null>): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) found.set(name, value);
  const text = found.toString();
  return text ? `?${text}` : "";
}

const there = typeof location === "undefined" ? { pathname: "/", search: "" } : location;
export const place = signal({ path: there.pathname, search: there.search });
export const route = computed(() => parseRoute(place.value.path));
export const query = computed(() => new URLSearchParams(place.value.search));

export function listenToHistory(): void {
  addEventListener("popstate", () => {
    place.value = { path: location.pathname, search: location.search };
  });
}

export function go(address: string, replace = false): void {
  const target = new URL(address, location.origin);
  if (target.origin !== location.origin) return;
  history[replace ? "replaceState" : "pushState"](null, "", target.pathname + target.search);
  place.value = { path: target.pathname, search: target.search };
  if (!replace) scrollTo(0, 0);
}

/** Changes parts of the query and leaves the others; an empty value takes a part out. */
export function amend(changes: Record<string, string | null>, replace = true): void {
  const search = amended(place.value.search, changes);
  if (search === place.value.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", place.value.path + search);
  place.value = { path: place.value.path, search };
}

export function amended(search: string, changes: Record<string, string | null>): string {
  const found = new URLSearchParams(search);
  for (const [name, value] of Object.entries(changes)) {
    if (value) found.set(name, value);
    else found.delete(name);
  }
  const text = found.toString();
  return text ? `?${text}` : "";
}
