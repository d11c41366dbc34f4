import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import * as yaml from "yaml";
import { ask, giveUpReads, HEAD_MS, KeyOfBody, Problem, readBlob, UNREACHABLE } from "../src/api/client";
import { floats } from "../src/api/exact";
import { changeGroup, makeGroup } from "../src/api/groups";
import { MOST_RETRY_MS, makeResource, RETRY_MS } from "../src/api/resource";
import { faultsOf } from "../src/pages/new";
import * as actions from "../src/parts/actions";
import { copy } from "../src/parts/controls";
import { boundOf, lastingOf, numberOf } from "../src/parts/entered";
import { cloneOf } from "../src/parts/experiment-dialogs";

interface Sent {
  method: string;
  path: string;
  headers: Headers;
  body: unknown;
  answer(body: unknown, status?: number, headers?: Record<string, string>): void;
}

let sent: Sent[] = [];

/** A service that answers when the test says so, and a browser that gives up when it is told to. */
function heldFetch(path: string, init: RequestInit): Promise<Response> {
  return new Promise((resolve, reject) => {
    init.signal?.addEventListener("abort", () => reject(new DOMException("given up", "AbortError")));
    sent.push({
      method: init.method ?? "GET",
      path,
      headers: new Headers(init.headers),
      body: init.body ? JSON.parse(String(init.body)) : undefined,
      answer: (body, status = 200, headers = {}) => resolve(Response.json(body, { status, headers })),
    });
  });
}

/** Lets what is due be done. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => setImmediate(resolve));
}

beforeEach(() => {
  sent = [];
  vi.stubGlobal("fetch", heldFetch);
  vi.stubGlobal("location", { origin: "http://box:8700" });
  vi.stubGlobal("history", { pushState: () => {} });
  vi.stubGlobal("scrollTo", () => {});
  // As on a page that was opened by plain http from another machine.
  const real = globalThis.crypto;
  vi.stubGlobal("crypto", { getRandomValues: (into: Uint8Array<ArrayBuffer>) => real.getRandomValues(into) });
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance", "Date"] });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe("what is asked for twice by a double click", () => {
  test.each([
    ["a start", (keys: KeyOfBody) => actions.start({ name: "x" }, keys)],
    ["a clone", (keys: KeyOfBody) => actions.clone("e", { name: "x" }, keys)],
    ["a trial of one's own", () => actions.addTrial("e", { x: 1 }, false)],
    ["a retry", () => actions.retryTrial("e", 3)],
    ["a retry of all that failed", () => actions.retryFailed("e")],
  ])("%s is sent once", async (_, click) => {
    const keys = new KeyOfBody();
    const both = [click(keys), click(keys)];
    await settle();
    expect(sent).toHaveLength(1);
    sent[0].answer({ id: "new", name: "x", number: 4 }, 201);
    await Promise.all(both);
    const later = click(keys);
    await settle();
    expect(sent, "it can be asked for again when it is done").toHaveLength(2);
    sent[1].answer({ id: "new", name: "x", number: 5 }, 201);
    await later;
  });

  test("a start that had no answer is the same one when it is tried again, another draft is another", async () => {
    const keys = new KeyOfBody();
    const [first, second, other] = [{ name: "x" }, { name: "x" }, { name: "y" }].map((draft) =>
      keys.of(draft),
    );
    expect(first).toMatch(/^[0-9a-f]{32}$/);
    expect(second).toBe(first);
    expect(other).not.toBe(first);
    const started = actions.start({ name: "z" }, keys);
    await settle();
    expect(sent[0].headers.get("Idempotency-Key")).toBe(keys.of({ name: "z" }));
    sent[0].answer({ id: "new", name: "z" }, 201);
    await started;
  });
});

describe("numbers that people type", () => {
  test.each([
    ["50", 50],
    [" 1.5 ", 1.5],
    ["-3", -3],
    ["2e3", 2_000],
    [".5", 0.5],
  ])("%j is %d", (text, value) => {
    expect(numberOf(text)).toBe(value);
  });

  test.each([
    "1,5",
    "",
    " ",
    "2e400",
    "50 trials",
    "1 000",
    "two",
    "NaN",
    "Infinity",
    "0x10",
    "12345678901234567890",
  ])("%j is told at its field", (text) => {
    expect(() => numberOf(text)).toThrow(Problem);
  });

  test("a clone is asked for with what was typed, or not at all", () => {
    expect(cloneOf("x", " ", "")).toEqual({ name: "x" });
    expect(cloneOf("x", "200", "7")).toEqual({ name: "x", seed: 7, budget: { trials: 200 } });
    expect(() => cloneOf("x", "1 000", "")).toThrow("is no number");
  });

  test("a bound of the budget is none where nothing is written", () => {
    expect([" ", "200"].map(boundOf)).toEqual([null, 200]);
    expect(() => boundOf("1 000")).toThrow("is no number");
  });

  test("a token is for ever only where nothing is written", () => {
    expect(lastingOf("  ")).toBeNull();
    expect(lastingOf("1.5")).toBe(129_600);
    expect(lastingOf("90d")).toBe("90d"); // the service reads it, or says why not
    expect(lastingOf("30,5")).toBe("30,5");
    expect(() => lastingOf("-1")).toThrow("longer than no time");
    expect(() => lastingOf("0")).toThrow("longer than no time");
  });

  test("what is no JSON is never null, which would mean that there is no bound", async () => {
    const done = ask("PUT", "quota-groups/a", { body: { gpus: Number.NaN, cpus: Number.POSITIVE_INFINITY } });
    await settle();
    expect(sent[0].body).toEqual({ gpus: "NaN", cpus: "Infinity" });
    sent[0].answer({});
    await done;
  });
});

describe("quota groups", () => {
  const vision = { name: "vision", gpus: 8, cpus: 4, memory_bytes: 1 << 30, borrows: false };

  test("a new one takes nothing from the one of that name", async () => {
    const made = makeGroup("vision");
    await settle();
    expect(sent[0].headers.get("If-None-Match")).toBe("*");
    const detail = "there is a quota group 'vision' already; it stays as it is";
    sent[0].answer({ title: "Precondition Failed", detail }, 412);
    await expect(made).rejects.toThrow(detail);
    expect(sent.length).toBe(1);
  });

  test("one is made where there is none of that name", async () => {
    const made = makeGroup("new one");
    await settle();
    expect(sent[0]).toMatchObject({
      method: "PUT",
      path: "/api/v1/quota-groups/new%20one",
      body: { gpus: 1 },
    });
    sent[0].answer({}, 201);
    await made;
  });

  test("a change leaves what somebody else has changed since", async () => {
    const changed = changeGroup("vision", { gpus: 1.5 });
    await settle();
    sent[0].answer(vision, 200, { ETag: 'W/"1"' });
    await settle();
    expect(sent[1].headers.get("If-Match")).toBe('W/"1"');
    sent[1].answer({ title: "Precondition Failed" }, 412);
    await settle();
    sent[2].answer({ ...vision, cpus: 6 }, 200, { ETag: 'W/"2"' });
    await settle();
    expect(sent[3].headers.get("If-Match")).toBe('W/"2"');
    expect(sent[3].body).toEqual({ gpus: 1.5, cpus: 6, memory: 1 << 30, borrows: false });
    sent[3].answer({});
    await changed;
  });
});

test("a page that was opened by plain http from elsewhere copies, too", async () => {
  const copied: string[] = [];
  const field = { value: "", select: () => {}, remove: () => {} };
  vi.stubGlobal("navigator", {});
  vi.stubGlobal("document", {
    createElement: () => field,
    querySelector: () => null,
    body: { append: () => {} },
    execCommand: () => copied.push(field.value) > 0,
  });
  await copy("lr: 0.1");
  expect(copied).toEqual(["lr: 0.1"]);
});

describe("a service that is away", () => {
  const away = () => Promise.reject(new TypeError("Failed to fetch"));

  test("is asked again by itself by who reads, and by nobody else: who changes something is not told so", async () => {
    vi.stubGlobal("fetch", away);
    const said = async (asked: Promise<unknown>) => {
      const problem = await asked.catch((error) => error as Problem);
      expect((problem as Problem).status).toBe(UNREACHABLE);
      return (problem as Problem).detail;
    };
    expect(await said(ask("GET", "x"))).toContain("tries again by itself");
    for (const method of ["POST", "PATCH", "PUT", "DELETE"]) {
      const detail = await said(ask(method, "x", { body: {} }));
      expect(detail).not.toContain("by itself");
      expect(detail).toContain("whether this was done is not known");
    }
    expect(await said(readBlob("x"))).toContain("ask again once it is back");
  });

  test("is no mistake of what was written for a start", () => {
    const [unknown] = faultsOf(new Problem(UNREACHABLE, "No answer", "not known"));
    expect(unknown).toEqual({
      pointer: "",
      detail: "the service does not answer; this is looked at again by itself",
    });
    expect(faultsOf(new Problem(503, "busy", "try again"))).toEqual([{ pointer: "", detail: "try again" }]);
    const faults = [{ pointer: "/name", detail: "is missing" }];
    expect(faultsOf(new Problem(422, "", "", faults))).toEqual(faults);
  });
});

describe("a service that does not answer", () => {
  const asked = () => sent.length;
  const load = (signal: AbortSignal) => ask<number>("GET", "x", { signal }).then(({ body }) => body);

  function opened() {
    const watched: ((soon: boolean) => void)[] = [];
    const resource = makeResource(load, ["a"], undefined, (_, changed) => {
      watched.push(changed);
      return () => {};
    });
    return { ...resource, close: resource.open(), again: () => watched.forEach((one) => one(false)) };
  }

  test("is not waited for without end by who reads, but by who changes something", async () => {
    const one = opened();
    let changed = false;
    void ask("POST", "y", { body: {} }).then(() => {
      changed = true;
    });
    await vi.advanceTimersByTimeAsync(HEAD_MS + 1);
    expect(one.problem.value?.status).toBe(UNREACHABLE);
    await vi.advanceTimersByTimeAsync(RETRY_MS);
    expect(asked()).toBe(3);
    sent[2].answer(7);
    sent[1].answer({});
    await settle();
    expect([one.data.value, one.problem.value, changed]).toEqual([7, undefined, true]);
    one.close();
  });

  test("is asked anew as soon as it is back, also where a read is under way that nobody will answer", async () => {
    const one = opened();
    giveUpReads();
    one.again();
    await vi.advanceTimersByTimeAsync(RETRY_MS);
    expect(asked()).toBe(2);
    one.close();
  });

  test("is asked again by and by, without an event, until it answers", async () => {
    const one = opened();
    let waited = RETRY_MS;
    for (let count = 1; count <= 7; count++) {
      expect(asked()).toBe(count);
      sent[count - 1].answer({ title: "busy" }, 503);
      await settle();
      expect(one.stale.value).toBe(count > 1);
      await vi.advanceTimersByTimeAsync(waited - 1);
      expect(asked()).toBe(count);
      await vi.advanceTimersByTimeAsync(1);
      waited = Math.min(MOST_RETRY_MS, 2 * waited);
    }
    sent[7].answer(1);
    await settle();
    await vi.advanceTimersByTimeAsync(10 * MOST_RETRY_MS);
    expect(asked()).toBe(8);
    one.close();
  });

  test("what it refuses is not asked for again", async () => {
    const one = opened();
    sent[0].answer({ title: "no such" }, 404);
    await settle();
    await vi.advanceTimersByTimeAsync(10 * MOST_RETRY_MS);
    expect([asked(), one.problem.value?.status, one.stale.value]).toEqual([1, 404, true]);
    one.close();
  });
});

test("a text of very many digits is looked at once, in a field and in an experiment file", () => {
  const text = `${"9".repeat(60_000)}x`;
  const begun = process.cpuUsage();
  expect(() => numberOf(text)).toThrow("is no number");
  expect(yaml.parse(`seed: ${text}`, { customTags: floats })).toEqual({ seed: text });
  expect(process.cpuUsage(begun).user).toBeLessThan(1_500_000); // microseconds
});
