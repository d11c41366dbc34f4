// Live changes: one stream for all tabs of a browser. The tab that holds the lock reads it and tells the others.
// Where the service has no stream for it, the pages look again by themselves.
import { signal } from "@preact/signals";
import { experimentsWrittenOf, forgetAllWritten, forgetWrittenOf } from "../state/draft";
import { serviceNow } from "../state/service-clock";
import { API, ask, experimentUrl, giveUpReads, PAGE_HEADERS, Problem, seen, signedOut } from "./client";
import { parsed } from "./exact";
import { readEvents, type ServerEvent } from "./sse";

/**
 * An experiment by its id; `outcomesOf` one: what is computed from how its trials ended; "cluster" for nodes, devices and
 * quota groups; a watcher of "*" hears of everything. HEALTH comes now and then although nothing has changed, and is for
 * those alone who watch it.
 */
export type Topic = string;
export const HEALTH: Topic = "/health"; // no experiment has such an id
/** Agents came or went, or have other devices; "cluster" comes with whatever happens to experiments, too. */
export const NODES: Topic = "/nodes";

export const outcomesOf = (id: string): Topic => `${id}/outcomes`;
const REMOVED = "/removed"; // behind the id of an experiment that is gone

export type Connection = "connecting" | "live" | "polling" | "lost";
export const connection = signal<Connection>("connecting");
/** Since when the service does not answer, and when it came back. */
export const lostSince = signal<number | null>(null);
export const cameBackAt = signal<number | null>(null);
/** Counts who has signed in, in any tab of this browser: each may be somebody else, who may do other things. */
export const signIns = signal(0);

const LOCK = "tuner-events";
const CHANNEL = "tuner-events";
const RETRY_MS = 250;
const MOST_RETRY_MS = 3_000;
const POLL_MS = 2_000;
const GONE_MS = 30_000; // between two looks for experiments that are gone
const GONE = "urn:tuner:problem:not-found";
const SILENCE_MS = 40_000; // the service sends something each 15 seconds; a stream without is dead

type Told =
  | { kind: "change"; topics: Topic[]; id: string }
  | { kind: "begin"; id: string }
  | { kind: "state"; state: Connection }
  | { kind: "who" }
  | { kind: "signed-in"; isNew: boolean }
  | { kind: "signed-out"; isMeant: boolean };

/** `soon`: after something that was done here, whose outcome somebody waits to see. */
type Watcher = (soon: boolean) => void;
const watchers = new Map<Topic, Set<Watcher>>();
let channel: BroadcastChannel | undefined;
let leading = false;
let lastId = "";
let wasLost = false;
/** Of each experiment that a patch told of: what the service tells its outcomes by. */
const outcomes = new Map<string, string>();
let wake: () => void = () => {};
let lookAfter = 0;

export function watch(topics: readonly Topic[], changed: Watcher): () => void {
  for (const topic of topics) {
    const found = watchers.get(topic) ?? new Set<Watcher>();
    found.add(changed);
    watchers.set(topic, found);
  }
  return () => {
    for (const topic of topics) watchers.get(topic)?.delete(changed);
  };
}

export function startLive(): void {
  if (channel) return;
  channel = new BroadcastChannel(CHANNEL);
  channel.onmessage = (message: MessageEvent<Told>) => hear(message.data);
  seen.behind = () => notify(["*"]);
  channel.postMessage({ kind: "who" } satisfies Told);
  // The lock is given back when its tab is closed; then the next one that waits leads. A page that was not opened by
  // https or on this machine has no locks: each of its tabs reads a stream of its own.
  if (navigator.locks) void navigator.locks.request(LOCK, lead);
  else void lead();
}

/** After signing in: whoever leads tries at once, and every tab looks at everything as who that is. */
export function signedInNow(): void {
  tell({ kind: "signed-in", isNew: true });
}

/**
 * Nobody is signed in any more, in any tab. `isMeant`: somebody has signed out, and leaves nothing there. What was
 * written in a session that has only ended waits for its writer.
 */
export function signedOutNow(isMeant: boolean): void {
  tell({ kind: "signed-out", isMeant });
}

function hear(told: Told): void {
  if (told.kind === "change") {
    if (told.id) {
      lastId = told.id; // whoever leads next goes on from there
      seen.event(told.id);
    }
    forgetWrittenOf(removedBy(told.topics));
    if (told.topics.includes("*")) void forgetWrittenOfGone();
    notify(told.topics);
  } else if (told.kind === "begin") seen.begin(told.id);
  else if (told.kind === "state") enter(told.state);
  else if (told.kind === "signed-out") {
    if (told.isMeant) forgetAllWritten();
    signedOut.value = true;
  } else if (told.kind === "signed-in") enterAs(told.isNew);
  else if (leading) channel?.postMessage({ kind: "state", state: connection.value } satisfies Told);
}

/** Where nothing tells what was deleted, as while the page polls, or something was missed: it is asked for. */
async function forgetWrittenOfGone(): Promise<void> {
  if (performance.now() < lookAfter) return;
  lookAfter = performance.now() + GONE_MS;
  for (const id of experimentsWrittenOf()) {
    try {
      await ask("GET", experimentUrl(id));
    } catch (error) {
      const type = error instanceof Problem ? (error.told as { type?: string } | null)?.type : undefined;
      if (type === GONE) forgetWrittenOf([id]); // said by the service itself, and by nothing in between
    }
  }
}

function removedBy(topics: readonly Topic[]): string[] {
  return topics.filter((one) => one.endsWith(REMOVED)).map((one) => one.slice(0, -REMOVED.length));
}

function tell(told: Told): void {
  channel?.postMessage(told);
  hear(told);
}

/** Not `isNew`: the stream shows that the session is good; whoever was turned away meanwhile goes on. */
function enterAs(isNew: boolean): void {
  if (!isNew && !signedOut.value) return;
  signedOut.value = false;
  signIns.value++;
  notify(["*"], true);
  wake();
}

function enter(state: Connection): void {
  const before = connection.value;
  if (state === before) return;
  connection.value = state;
  if (state !== "live") seen.ended();
  if (state === "lost") lostSince.value = serviceNow();
  else if (state !== "connecting" && before === "lost") {
    lostSince.value = null;
    giveUpReads();
    notify(["*"], true);
  } else if (state === "live" && before === "polling") notify(["*"], true); // what was refused until now
  if (state === "lost") wasLost = true;
  else if (state === "live" && wasLost) {
    wasLost = false; // not before: who answers, and has no stream, may be a standby
    cameBackAt.value = Date.now();
  }
}

function notify(topics: readonly Topic[], soon = false): void {
  const called = new Set<Watcher>();
  const isChange = topics.some((topic) => topic !== HEALTH);
  const chosen = topics.includes("*") ? [...watchers.keys()] : [...topics, ...(isChange ? ["*"] : [])];
  for (const topic of chosen) for (const changed of watchers.get(topic) ?? []) called.add(changed);
  for (const changed of called) changed(soon);
}

/** Everybody in this tab looks again, at once: after an action of one's own. */
export function touch(...topics: Topic[]): void {
  notify(topics.length > 0 ? topics : ["*"], true);
}

/** Reads the stream for all tabs, for as long as this one is open. */
async function lead(): Promise<never> {
  leading = true;
  let retry = RETRY_MS;
  for (;;) {
    const asked = signIns.value;
    const status = await stream(() => {
      retry = RETRY_MS;
    });
    if (status === 401 && signIns.value !== asked) continue; // somebody has signed in meanwhile
    if (status === 401) {
      // The session has ended: without this a page that reads nothing by itself would show what was, as if it were live.
      tell({ kind: "state", state: "connecting" });
      signedOutNow(false);
      await pause(MOST_RETRY_MS);
    } else if (status >= 400 && status !== 502 && status !== 504) {
      tell({ kind: "state", state: "polling" });
      tell({ kind: "change", topics: ["*"], id: "" });
      await pause(POLL_MS);
    } else {
      if (status === 0) tell({ kind: "state", state: "lost" });
      await pause(retry);
      retry = Math.min(MOST_RETRY_MS, retry * 2);
    }
  }
}

/** One connection, until it ends; 0 where the service does not answer. */
async function stream(begun: () => void): Promise<number> {
  const abort = new AbortController();
  let silence: ReturnType<typeof setTimeout> | undefined;
  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(() => abort.abort(), SILENCE_MS);
  };
  heard();
  try {
    const headers = {
      ...PAGE_HEADERS,
      Accept: "text/event-stream",
      ...(lastId ? { "Last-Event-ID": lastId } : {}),
    };
    const take = (event: ServerEvent) => {
      heard();
      begun();
      takeEvent(event);
    };
    return await readEvents(`${API}/events`, headers, take, abort.signal);
  } catch {
    return 0;
  } finally {
    clearTimeout(silence);
    abort.abort();
  }
}

function takeEvent(event: ServerEvent): void {
  if (connection.value !== "live") {
    tell({ kind: "state", state: "live" });
    tell({ kind: "signed-in", isNew: false });
  }
  if (event.id) lastId = event.id;
  if (event.name === "begin") tell({ kind: "begin", id: event.id });
  const topics = topicsOf(event, outcomes);
  if (topics.length > 0) tell({ kind: "change", topics, id: event.id });
}

interface TellingExperiment {
  id: string;
  counts?: Record<string, number>;
  budget?: { trials?: number | null };
}

/**
 * Which topics an event concerns; everything where something may have been missed. `known` has what was last told of
 * the outcomes of each experiment, and is brought up to date.
 */
export function topicsOf(
  event: Pick<ServerEvent, "name" | "data">,
  known: Map<string, string> = new Map(),
): Topic[] {
  if (event.name === "begin") return [];
  if (event.name === "heartbeat") return [HEALTH];
  if (event.name === "cluster") return ["cluster", NODES];
  if (event.name !== "patch") return ["*"];
  try {
    const told = parsed(event.data) as {
      experiments?: TellingExperiment[];
      trials?: Record<string, unknown>;
      checkpoints?: Record<string, unknown>;
      search_spaces?: string[];
      removed?: string[];
      quota_groups?: boolean;
    };
    const found = new Set<Topic>();
    for (const one of told.experiments ?? []) {
      found.add(one.id);
      const now = outcomesIn(one);
      if (known.get(one.id) !== now) found.add(outcomesOf(one.id));
      known.set(one.id, now);
    }
    for (const id of Object.keys({ ...told.trials, ...told.checkpoints })) found.add(id);
    for (const id of [...(told.search_spaces ?? []), ...(told.removed ?? [])]) {
      found.add(id);
      found.add(outcomesOf(id));
      known.delete(id);
    }
    for (const id of told.removed ?? []) found.add(id + REMOVED);
    if (told.quota_groups || found.size > 0) found.add("cluster");
    return [...found];
  } catch {
    return ["*"];
  }
}

/** The service computes what outcomes tell anew when this, or the search space, has changed. */
function outcomesIn({ counts, budget }: TellingExperiment): string {
  return JSON.stringify([counts?.succeeded ?? 0, counts?.early_stopped ?? 0, budget?.trials ?? null]);
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}
