import { afterEach, describe, expect, test, vi } from "vitest";
import { MOST_REPORTS, reportsReader } from "../src/api/reports";
import type { ExperimentDetail } from "../src/api/shapes";
import { fileOf, hiddenOf } from "../src/pages/experiment-files";
import { startingFrom } from "../src/pages/new";
import { Begun } from "../src/parts/entered";

afterEach(() => {
  vi.unstubAllGlobals();
});

test("what somebody else has changed meanwhile is told before it is overwritten, once", () => {
  const begun = new Begun("as it was");
  begun.guard("as it was");
  expect(() => begun.guard("another")).toThrow("it has become “another” meanwhile");
  begun.guard("another");
  expect(() => begun.guard("")).toThrow("it has become nothing meanwhile");
});

describe("an experiment whose values are hidden from who is signed in", () => {
  const view = {
    name: "x",
    seed: 7,
    trial: { command: ["python"], environment: { TOKEN: null, KEY: null, MODE: "fast" } },
    executor: { name: "ray", runtime_env: { env_vars: null } },
  } as unknown as ExperimentDetail;

  test("is another one's beginning without them, and they are named", () => {
    expect(startingFrom(view)).toEqual({
      name: "x",
      trial: { command: ["python"], environment: { MODE: "fast" } },
      executor: { name: "ray", runtime_env: {} },
    });
    expect(hiddenOf(view)).toEqual(["TOKEN", "KEY", "env_vars"]);
  });

  test("has them all for who may see them, and may have no executor", () => {
    const trial = { command: ["python"], environment: { TOKEN: "t" } };
    const seen = { ...view, trial, executor: null } as unknown as ExperimentDetail;
    expect(fileOf(seen)).toEqual({ name: "x", seed: 7, trial });
    expect(hiddenOf(seen)).toEqual([]);
  });
});

describe("the reports of a trial", () => {
  /** A trial with so many reports; `asked` has how many each read was answered with. */
  function serve(count: { now: number }): number[] {
    const asked: number[] = [];
    vi.stubGlobal("fetch", async (path: string) => {
      const { searchParams } = new URL(path, "http://box");
      const from = Number(searchParams.get("cursor") ?? 0);
      const until = Math.min(count.now, from + Number(searchParams.get("limit")));
      const items = Array.from({ length: until - from }, (_, place) => ({ step: from + place }));
      asked.push(items.length);
      return Response.json({ items, next: until < count.now ? String(until) : null });
    });
    return asked;
  }
  const { signal } = new AbortController();

  test("are read on from where the last read ended, and not at all when no more will come", async () => {
    const count = { now: 25_500 };
    const asked = serve(count);
    let ended = false;
    const read = reportsReader("e", 1, () => ended);
    expect((await read(signal)).items).toHaveLength(25_500);
    count.now = 25_600;
    expect((await read(signal)).items).toHaveLength(25_600);
    asked.length = 0;
    count.now = 25_700;
    expect((await read(signal)).items.at(-1)).toEqual({ step: 25_699 });
    expect(asked).toEqual([700]);
    ended = true;
    expect((await read(signal)).items).toHaveLength(25_700);
    asked.length = 0;
    expect(await read(signal)).toMatchObject({ leftOut: 0 });
    expect(asked).toEqual([]);
  });

  test("are the newest where there are very many, and how many are left out is told", async () => {
    serve({ now: MOST_REPORTS + 12_345 });
    const { items, leftOut } = await reportsReader("e", 1, () => true)(signal);
    expect([items.length, leftOut]).toEqual([MOST_REPORTS, 12_345]);
    expect(items.at(-1)).toEqual({ step: MOST_REPORTS + 12_344 });
  });
});
