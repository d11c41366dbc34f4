// Requests to the service; whatever goes wrong is a Problem that says what, which and what to do.
import { signal } from "@preact/signals";
import { Seen } from "./seen";
import type { Json } from "./shapes";

export interface Fault {
  pointer: string;
  detail: string;
}

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly title: string,
    readonly detail: string,
    readonly faults: readonly Fault[] = [],
    readonly allowed: readonly string[] = [],
  ) {
    super(detail || title);
  }
}

/** The service did not answer at all. */
export const UNREACHABLE = 0;

export interface Answer<T> {
  body: T;
  etag: string | null;
  headers: Headers;
}

export interface Asked {
  body?: Json | Record<string, unknown>;
  ifMatch?: string | null;
  key?: string;
  signal?: AbortSignal;
}

/** Changed when the service says that nobody is signed in; the page shows the login then. */
export const signedOut = signal(false);

/** What this page was told and given: the service may answer several pages that were told the same with one answer. */
export const seen = new Seen();

export const API = "/api/v1";
/** By this header the service knows its own page: no other origin can send it without being asked. */
export const PAGE_HEADERS = { "X-Tuner-Page": "1" };

export async function ask<T>(method: string, path: string, asked: Asked = {}): Promise<Answer<T>> {
  const headers = headersOf(asked);
  const event = method === "GET" ? seen.eventFor(path) : "";
  if (event) headers.set("Last-Event-ID", event);
  const response = await fetch(address(path), {
    method,
    headers,
    credentials: "same-origin",
    redirect: "error",
    ...(asked.body === undefined ? {} : { body: JSON.stringify(asked.body) }),
    ...(asked.signal ? { signal: asked.signal } : {}),
  }).catch((error: unknown) => {
    if (asked.signal?.aborted) throw error;
    throw new Problem(
      UNREACHABLE,
      "No answer",
      "the service does not answer; the page tries again by itself",
    );
  });
  if (!response.ok) throw await problemOf(response);
  const has = response.headers.get("x-tuner-event") ?? "";
  if (has) seen.answered(method === "GET" ? path : null, has);
  const isJson = (response.headers.get("content-type") ?? "").includes("json");
  const body = (isJson ? await response.json() : await response.text()) as T;
  return { body, etag: response.headers.get("etag"), headers: response.headers };
}

/** Reads under way that nobody waits for yet, by path. */
const early = new Map<string, Promise<Answer<unknown>>>();

/** Begins a read that a part of the page will ask for as soon as it is there; `read` then takes this one, once. */
export function readEarly(path: string): void {
  if (early.has(path)) return;
  const answer = ask<unknown>("GET", path);
  answer.catch(() => undefined); // whoever asks for it is told
  early.set(path, answer);
}

/** What was read early may be another by now. */
export function forgetEarly(): void {
  early.clear();
}

export async function read<T>(path: string, signal?: AbortSignal): Promise<T> {
  const begun = early.get(path);
  if (begun) {
    early.delete(path);
    return (await begun).body as T;
  }
  return (await ask<T>("GET", path, signal ? { signal } : {})).body;
}

export async function send<T>(
  path: string,
  body: Json | Record<string, unknown> = {},
  asked: Asked = {},
): Promise<T> {
  return (await ask<T>("POST", path, { ...asked, body })).body;
}

/** Every page of a list, up to `most` items. */
export async function readAll<T>(path: string, most = 10_000, signal?: AbortSignal): Promise<T[]> {
  const found: T[] = [];
  let cursor: string | null = null;
  do {
    const glue = path.includes("?") ? "&" : "?";
    const next: string = cursor ? `${glue}cursor=${encodeURIComponent(cursor)}` : "";
    const page: { items: T[]; next: string | null } = await read(path + next, signal);
    found.push(...page.items);
    cursor = page.next;
  } while (cursor && found.length < most);
  return found;
}

export function address(path: string): string {
  return path.startsWith("/") ? path : `${API}/${path}`;
}

/** The bytes of an answer, for a file to keep. */
export async function readBlob(path: string): Promise<Blob> {
  const response = await fetch(address(path), {
    headers: PAGE_HEADERS,
    credentials: "same-origin",
    redirect: "error",
  });
  if (!response.ok) throw await problemOf(response);
  return response.blob();
}

export function experimentUrl(id: string, rest = ""): string {
  return `experiments/${encodeURIComponent(id)}${rest}`;
}

export function trialUrl(id: string, number: number, rest = ""): string {
  return `trials/${encodeURIComponent(id)}/${number}${rest}`;
}

function headersOf(asked: Asked): Headers {
  const headers = new Headers({ Accept: "application/json", ...PAGE_HEADERS });
  if (asked.body !== undefined) headers.set("Content-Type", "application/json");
  if (asked.ifMatch) headers.set("If-Match", asked.ifMatch);
  if (asked.key) headers.set("Idempotency-Key", asked.key);
  return headers;
}

async function problemOf(response: Response): Promise<Problem> {
  const told = (await response.json().catch(() => ({}))) as {
    title?: string;
    detail?: string;
    errors?: { pointer?: string; detail?: string }[];
    allowed?: string[];
  };
  if (response.status === 401) signedOut.value = true;
  const faults = (told.errors ?? []).map((one) => ({ pointer: one.pointer ?? "", detail: one.detail ?? "" }));
  const title = told.title ?? `the service answered ${response.status}`;
  return new Problem(response.status, title, told.detail ?? title, faults, told.allowed ?? []);
}
