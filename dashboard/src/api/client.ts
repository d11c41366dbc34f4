// Requests to the service; whatever goes wrong is a Problem that says what, which and what to do.
import { signal } from "@preact/signals";
import { heardDate } from "../state/service-clock";
import { exactly, parsed } from "./exact";
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
    /** The whole answer. */
    readonly told: unknown = null,
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
  isNew?: boolean; // what is there already stays as it is, and is a Problem of status 412
  key?: string;
  signal?: AbortSignal;
  exact?: boolean; // floats that are whole numbers are told from whole numbers
}

/** Changed when the service says that nobody is signed in; the page shows the login then. */
export const signedOut = signal(false);

/** What this page was told and given: the service may answer several pages that were told the same with one answer. */
export const seen = new Seen();

export const API = "/api/v1";
/** For the beginning of an answer: longer than the service computes, at most, before it says that it could not. */
export const HEAD_MS = 90_000;
const BODY_MS = 300_000; // for the rest of it, on a slow line
/** By this header the service knows its own page: no other origin can send it without being asked. */
export const PAGE_HEADERS = { "X-Tuner-Page": "1" };

/** A read is given up when nothing is heard of it for `HEAD_MS`. A change is not: it may have been made. */
export async function ask<T>(method: string, path: string, asked: Asked = {}): Promise<Answer<T>> {
  const headers = headersOf(asked);
  const event = method === "GET" ? seen.eventFor(path) : "";
  if (event) headers.set("Last-Event-ID", event);
  const patience = new Patience(asked.signal, method === "GET");
  try {
    const response = await fetch(address(path), {
      method,
      headers,
      credentials: "same-origin",
      redirect: "error",
      signal: patience.signal,
      ...(asked.body === undefined ? {} : { body: encoded(asked.body) }),
    });
    patience.begin(BODY_MS);
    heardDate(response.headers.get("date"));
    if (!response.ok) throw await problemOf(response);
    const has = response.headers.get("x-tuner-event") ?? "";
    if (has) seen.answered(method === "GET" ? path : null, has);
    const isJson = (response.headers.get("content-type") ?? "").includes("json");
    const text = await response.text();
    const body = (isJson ? (asked.exact ? exactly(text) : parsed(text)) : text) as T;
    return { body, etag: response.headers.get("etag"), headers: response.headers };
  } catch (error) {
    if (asked.signal?.aborted || error instanceof Problem || error instanceof SyntaxError) throw error;
    throw unanswered(method === "GET");
  } finally {
    patience.end();
  }
}

/** A read is tried again by itself, or shown where it stands to be; what should change something is done once, or not at all. */
function unanswered(isRead: boolean): Problem {
  return new Problem(
    UNREACHABLE,
    "No answer",
    isRead
      ? "the service does not answer; the page tries again by itself"
      : "the service does not answer, and whether this was done is not known: look once it is back, and ask again where it was not",
  );
}

/** Reads under way: of a connection that was lost meanwhile no answer may ever come. */
const waiting = new Set<Patience>();

/** Gives up every read that is under way: after the service was away. */
export function giveUpReads(): void {
  for (const one of [...waiting]) one.giveUp();
}

/** How long an answer is waited for, and whether it is wanted still. */
class Patience {
  private readonly over = new AbortController();
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly wanted: AbortSignal | undefined,
    private readonly isRead: boolean,
  ) {
    if (wanted?.aborted) this.over.abort(wanted.reason);
    wanted?.addEventListener("abort", this.giveUp);
    if (isRead) waiting.add(this);
    this.begin(HEAD_MS);
  }

  get signal(): AbortSignal {
    return this.over.signal;
  }

  begin(ms: number): void {
    clearTimeout(this.timer);
    if (this.isRead) this.timer = setTimeout(this.giveUp, ms);
  }

  readonly giveUp = (): void => this.over.abort(this.wanted?.reason);

  end(): void {
    clearTimeout(this.timer);
    waiting.delete(this);
    this.wanted?.removeEventListener("abort", this.giveUp);
  }
}

/** NaN and the infinities are no JSON. As the texts that the API has for them they are understood or refused; null is neither. */
function encoded(body: unknown): string {
  return JSON.stringify(body, (_, value) =>
    typeof value === "number" && !Number.isFinite(value) ? String(value) : value,
  );
}

/** For `Idempotency-Key`. `crypto.randomUUID` is not there on a page that was opened by plain http from elsewhere. */
export function newKey(): string {
  const drawn = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(drawn, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** One key for as long as the same is asked for, however often that is: a second click makes no second one. */
export class KeyOfBody {
  private body = "";
  private key = "";

  /** To go on with in another page. */
  get last(): [string, string] {
    return [this.body, this.key];
  }

  set last([body, key]: [string, string]) {
    this.body = body;
    this.key = key;
  }

  of(body: Json | Record<string, unknown>): string {
    const asked = encoded(body);
    if (this.key === "" || asked !== this.body) this.key = newKey();
    this.body = asked;
    return this.key;
  }
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

/** As `read`, of what will be sent again: every number as it was written. */
export async function readExactly<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await ask<T>("GET", path, { exact: true, ...(signal ? { signal } : {}) })).body;
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
  const asked: RequestInit = { headers: PAGE_HEADERS, credentials: "same-origin", redirect: "error" };
  const lost = () => {
    throw new Problem(UNREACHABLE, "No answer", "the service does not answer; ask again once it is back");
  };
  const response = await fetch(address(path), asked).catch(lost);
  if (!response.ok) throw await problemOf(response);
  return response.blob().catch(lost);
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
  if (asked.isNew) headers.set("If-None-Match", "*");
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
  return new Problem(response.status, title, told.detail ?? title, faults, told.allowed ?? [], told);
}
