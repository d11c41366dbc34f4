// What people do to experiments and trials: a request, a word that it was done, and everything is read anew.
import { experimentUrl, type KeyOfBody, ask as request, send, trialUrl } from "../api/client";
import { touch } from "../api/live";
import { asProblem } from "../api/resource";
import type { ExperimentDetail, Trial, Values } from "../api/shapes";
import { experimentPath, go, trialPath } from "../state/address";
import { faultWords } from "./controls";
import { say } from "./notices";

/** Does it and says so; what went wrong is said too. True when it was done. */
export function act(work: () => Promise<unknown>, done: string, ...topics: string[]): Promise<boolean> {
  return actOn("", work, done, ...topics);
}

/** `what` it is done to, where neither its words nor its topics tell it from the same that is done to another. */
export async function actOn(
  what: string,
  work: () => Promise<unknown>,
  done: string,
  ...topics: string[]
): Promise<boolean> {
  const about = [what, done, ...topics].join(" ");
  try {
    await work();
    say(done, "good", about);
    return true;
  } catch (error) {
    say(faultWords(asProblem(error)), "bad", about);
    return false;
  } finally {
    touch(...topics);
  }
}

/** What notices about the start of an experiment are about. */
export const STARTING = "start";
const underWay = new Map<string, Promise<void>>();

/** Does it, unless what has that name is being done already: a double click is one click. */
function once(name: string, work: () => Promise<void>): Promise<void> {
  const begun = underWay.get(name);
  if (begun) return begun;
  const done = work().finally(() => underWay.delete(name));
  underWay.set(name, done);
  return done;
}

export const pause = (id: string) =>
  act(() => send(experimentUrl(id, "/pause")), "Paused: no new trials; those that run go on", id);
export const resume = (id: string) => act(() => send(experimentUrl(id, "/resume")), "The search goes on", id);
export const stop = (id: string) =>
  act(
    () => send(experimentUrl(id, "/stop")),
    "Stopping: trials keep their checkpoints and go on when you resume",
    id,
  );
export const remove = (id: string) => actOn(id, () => request("DELETE", experimentUrl(id)), "Removed", "*");

export const archive = (id: string) =>
  act(() => send(experimentUrl(id, "/archive")), "Its metrics are being archived", id);
export const unarchive = (id: string) =>
  act(() => send(experimentUrl(id, "/unarchive")), "Its metrics are being put back", id);

export function retryFailed(id: string): Promise<void> {
  return once(`retry the failed of ${id}`, async () => {
    await act(
      () => send(experimentUrl(id, "/trials/retry")),
      "Each failed trial runs again as a new trial",
      id,
    );
  });
}

/** Starts what was written and goes there. Raises a Problem with the fields that are wrong. */
export function start(draft: Values, keys: KeyOfBody): Promise<void> {
  return once("start", async () => {
    const made = await send<ExperimentDetail>("experiments", draft, { key: keys.of(draft) });
    say(`${made.name} has started`, "good", STARTING);
    go(experimentPath(made.id));
    touch("*");
  });
}

/** Starts another one like it and goes there. Raises a Problem with the fields that are wrong. */
export function clone(id: string, body: Values, keys: KeyOfBody): Promise<void> {
  return once(`clone ${id}`, async () => {
    const made = await send<ExperimentDetail>(experimentUrl(id, "/clone"), body, { key: keys.of(body) });
    say("A new experiment like it has started");
    go(experimentPath(made.id));
    touch("*");
  });
}

/** Raises a Problem with the fields that are wrong. */
export function addTrial(id: string, parameters: Values, outside: boolean): Promise<void> {
  return once(`add to ${id}`, async () => {
    const made = await send<Trial>(experimentUrl(id, "/trials"), { parameters, outside_space: outside });
    say(`Trial ${made.number} waits for a place`);
    touch(id);
  });
}

export async function change(id: string, body: Values): Promise<void> {
  await request("PATCH", experimentUrl(id), { body });
  touch(id);
}

export const stopTrial = (id: string, number: number) =>
  act(() => send(trialUrl(id, number, "/stop")), `Trial ${number} is given up`, id);

export function retryTrial(id: string, number: number): Promise<void> {
  return once(`retry ${id}/${number}`, async () => {
    await act(
      async () => {
        const made = await send<Trial>(trialUrl(id, number, "/retry"));
        go(trialPath(id, made.number));
      },
      `Trial ${number} is tried again`,
      id,
    );
  });
}
