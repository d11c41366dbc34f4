import { signal } from "@preact/signals";
import type { VNode } from "preact";
import { afterEach, expect, test, vi } from "vitest";
import { Problem, UNREACHABLE } from "../src/api/client";
import { newestOf } from "../src/api/growing";
import { readReadiness, troubleOf } from "../src/api/readiness";
import type { Resource } from "../src/api/resource";
import { trialsOf } from "../src/api/trials";
import { thoseThere } from "../src/pages/compare";
import { firstShown } from "../src/pages/experiment-journal";
import { Choice } from "../src/pages/trial";
import { Awaited, Missing, Stale } from "../src/parts/awaited";
import { Loading, Trouble } from "../src/parts/controls";

let asked: URL[] = [];

/** A service that answers at once. */
function serve(answer: (url: URL) => [number, unknown]): void {
  asked = [];
  vi.stubGlobal("fetch", async (path: string) => {
    const url = new URL(path, "http://box");
    asked.push(url);
    const [status, body] = answer(url);
    return Response.json(body, { status });
  });
}

afterEach(() => {
  vi.unstubAllGlobals();
});

test("of a space with more parameters than columns the trials are read with those of each together", async () => {
  const parameters = Object.fromEntries([...Array(250).keys()].map((place) => [`x${place}`, place]));
  const tooWide = { errors: [{ pointer: "/query/columns", detail: "names 259 columns" }] };
  serve((url) => {
    if (url.searchParams.get("columns")?.includes("parameters.*")) return [422, tooWide];
    const after = Number(url.searchParams.get("cursor") ?? 0);
    const columns = { number: [after + 1], status: ["succeeded"], value: [1], parameters: [parameters] };
    return [200, { columns, next: after < 1 ? "1" : null, revision: "a.1", since: null }];
  });
  const state = trialsOf("e");
  await state.load(new AbortController().signal);
  expect(state.trials.length).toBe(2);
  expect(state.trials.find("x249")?.data[1]).toBe(249);
  await state.load(new AbortController().signal);
  expect(asked.at(-1)?.searchParams.get("since")).toBe("a.1");
  expect(asked.filter((url) => url.search.includes("parameters.*"))).toHaveLength(1);
});

test("of a list that has grown long the newest are kept, and what was read is not read again", async () => {
  const there = Array.from({ length: 7 }, (_, place) => place + 1);
  serve((url) => {
    const after = Number(url.searchParams.get("cursor") ?? 0);
    const next = after + 3 < there.length ? String(after + 3) : null;
    return [200, { items: there.slice(after, after + 3), next }];
  });
  const reader = newestOf<number>("experiments/e/search-space/revisions", 2);
  const signal = new AbortController().signal;
  expect(await reader(signal)).toEqual([5, 6, 7]);
  there.push(8);
  expect(await reader(signal)).toEqual([5, 6, 7, 8]);
  expect(asked.map((url) => url.searchParams.get("cursor"))).toEqual([null, "3", "6", "6"]);
});

test("another refusal of the trials is the reader's to know", async () => {
  serve(() => [503, { title: "busy", detail: "try again" }]);
  await expect(trialsOf("e").load(new AbortController().signal)).rejects.toThrow("try again");
});

test("of a service in trouble it is told which part that is, although it answers with 503", async () => {
  const parts = { dispatcher: "ok", database: "the disk is full" };
  serve(() => [503, { ready: false, role: "active", parts }]);
  const told = await readReadiness();
  expect(troubleOf(told)).toBe("database: the disk is full");
  expect(troubleOf({ ...told, parts: { database: "ok" } })).toBe("");
  expect(troubleOf({ ...told, role: "standby" }), "it waits for its turn").toBe("");
  expect(troubleOf(undefined)).toBe("");
  serve(() => [503, { title: "busy", detail: "try again" }]);
  await expect(readReadiness()).rejects.toThrow("try again");
});

test("of several that are compared those that are there are shown, and the others told", async () => {
  const there = Promise.resolve(1);
  const gone = () => Promise.reject(new Problem(404, "Not Found", "no such experiment"));
  const busy = () => Promise.reject(new Problem(503, "busy", "try again"));
  await expect(
    thoseThere([
      ["a", there],
      ["b", gone()],
    ]),
  ).resolves.toEqual({ found: [1], gone: ["b"] });
  await expect(thoseThere([["b", gone()]])).rejects.toThrow("no such experiment");
  await expect(
    thoseThere([
      ["a", there],
      ["b", busy()],
    ]),
  ).rejects.toThrow("try again");
});

function resource(data: unknown, problem: Problem | undefined, stale = true): Resource<unknown> {
  return { data: signal(data), problem: signal(problem), stale: signal(stale), reload: () => {} };
}

test("what cannot be read says so: in its place, over what there was, or among others", () => {
  const busy = new Problem(503, "busy", "try again");
  const kind = (shown: unknown) => (shown as VNode | null)?.type ?? null;
  expect(kind(Awaited({ of: resource(undefined, undefined), what: "x" }))).toBe(Loading);
  expect(kind(Awaited({ of: resource(undefined, busy), what: "x" }))).toBe(Trouble);
  expect(kind(Stale({ of: resource(1, busy), what: "x" }))).toBe("p");
  expect(kind(Stale({ of: resource(1, undefined), what: "x" }))).toBeNull();
  expect(kind(Stale({ of: resource(1, busy, false), what: "x" })), "it may pass at once").toBeNull();
  expect(kind(Stale({ of: resource(1, new Problem(UNREACHABLE, "", "")), what: "x" }))).toBeNull();
  expect(kind(Missing({ of: resource(undefined, busy), what: "x" }))).toBe("div");
  expect(kind(Missing({ of: resource(undefined, undefined), what: "x" }))).toBeNull();
  expect(kind(Missing({ of: resource(1, busy), what: "x" })), "over what was read before").toBe(Stale);
});

test("each of very many metrics can be chosen to be drawn", () => {
  const names = [...Array(62).keys()].map((place) => `m${place}`);
  const said = (shown: readonly string[]) => Choice({ names: shown, chosen: "m0" }) as VNode;
  expect(said(names.slice(0, 30)).type).toBe("div");
  const all = said(names);
  expect(all.type).toBe("label");
  expect(names.filter((name) => !JSON.stringify(all).includes(`"${name}"`))).toEqual([]);
});

test.each([
  [null, 12, 0],
  ["400", 900, 400],
  ["500", 12, 0],
  ["100000", 900, 800],
  ["-3", 900, 0],
  ["x", 900, 0],
  ["400", 0, 0],
  ["800", 800, 400],
])("a journal from %s of %d lines is shown from %d", (from, lines, first) => {
  expect(firstShown(from, lines)).toBe(first);
});
