import type { VNode } from "preact";
import { describe, expect, test } from "vitest";
import { makeColumns, sorted } from "../src/pages/experiment-trials";
import { type TableAnswer, Trials } from "../src/state/columns";
import { compile, parseFilter, passing } from "../src/state/filters";

function table(...rows: [number, string, number | string | null, Record<string, unknown>][]): TableAnswer {
  return {
    number: rows.map(([number]) => number),
    status: rows.map(([, status]) => status),
    reason: rows.map(() => "launched"),
    value: rows.map(([, , value]) => value),
    parameters: rows.map(([, , , parameters]) => parameters),
  };
}

/** The text of what is drawn. */
function render(drawn: unknown): string {
  if (Array.isArray(drawn)) return drawn.map(render).join("");
  const children = (drawn as VNode<{ children?: unknown }> | undefined)?.props?.children;
  return children === undefined ? String(drawn ?? "") : render(children);
}

describe("the columns of trials", () => {
  test("hold what the answer has, row by row", () => {
    const trials = new Trials();
    expect(
      trials.apply(
        table(
          [1, "succeeded", 0.5, { lr: 0.1, optimizer: "sgd" }],
          [2, "failed", null, { lr: 0.2, optimizer: "adam" }],
        ),
      ),
    ).toBe(true);
    expect(trials.length).toBe(2);
    expect([trials.statusOf(0), trials.statusOf(1)]).toEqual(["succeeded", "failed"]);
    expect(trials.value[0]).toBe(0.5);
    expect(trials.value[1]).toBeNaN();
    const optimizer = trials.find("optimizer");
    expect(optimizer?.kind).toBe("category");
    expect(optimizer && trials.text(optimizer, 1)).toBe("adam");
    expect(trials.text(trials.reason, 0)).toBe("launched");
  });

  test("a trial that says nothing has run on all the same, in whichever attempt", () => {
    const trials = new Trials();
    const at = "2026-01-01T00:00:00Z";
    trials.apply(
      {
        number: [1, 2, 3, 4],
        status: ["running", "succeeded", "running", "waiting"],
        attempts: [1, 1, 2, 0],
        running_s: [5, 5, 3600, 0],
        started_at: [at, at, at, null],
      },
      Date.parse(at) + 3_605_000,
    );
    const later = Date.parse(at) + 7_205_000;
    expect([0, 1, 2, 3].map((row) => trials.ranFor(row, later))).toEqual([3_605, 5, 7_200, 0]);
    expect(trials.ranFor(0, Date.parse(at)), "a clock that is behind takes nothing back").toBe(5);
    for (const once of [later, later, later - 60_000]) trials.countOn(once);
    expect([0, 1, 2, 3].map((row) => trials.running[row])).toEqual([3_605, 5, 7_200, 0]);
    const long = compile(parseFilter("duration > 3600"), trials);
    expect([...passing(trials, long)]).toEqual([0, 2]);
  });

  test("of a trial that has not ended, what it has reached is told as that, and when it reported", () => {
    const trials = new Trials();
    const at = "2026-01-01T00:00:00Z";
    trials.apply({
      number: [1, 2, 3, 4, 5],
      status: ["succeeded", "running", "running", "paused", "failed"],
      value: [0.25, null, null, null, null],
      last_value: [0.5, 0.125, null, "NaN", 0.75],
      step: [9, 3, null, 2, 1],
      reported_at: [null, at, null, at, null],
    });
    expect([0, 1, 2, 3, 4].map((row) => trials.soFar(row))).toEqual([null, 0.125, null, Number.NaN, null]);
    const columns = new Map(makeColumns("e", trials, [], "loss").map((column) => [column.name, column]));
    const value = columns.get("value");
    expect([0, 2, 4].map((row) => value?.cell(row))).toEqual(["0.25", "–", "–"]);
    expect(render(value?.cell(1))).toBe("0.125 so far");
    expect(render(value?.cell(3))).toBe("NaN so far");
    expect(value?.title?.(1)).toBe("0.125 so far, at step 3");
    expect(columns.get("reported")?.cell(1)).toMatchObject({ props: { at: Date.parse(at) } });
    expect(columns.get("reported")?.cell(0)).toMatchObject({ props: { at: null } });
  });

  test("are sorted by what is final, then by what has been reached, then what has neither", () => {
    const trials = new Trials();
    trials.apply({
      number: [1, 2, 3, 4, 5, 6],
      status: ["running", "succeeded", "waiting", "running", "succeeded", "running"],
      value: [null, 3, null, null, 1, null],
      last_value: [9, 3, null, 0, 1, "NaN"],
      step: [1, 1, null, 1, 1, 1],
      reported_at: ["2026-01-01T00:00:02Z", null, null, "2026-01-01T00:00:01Z", null, "2026-01-01T00:00:03Z"],
    });
    const order = (by: string, down: boolean) =>
      [...sorted(trials, Int32Array.of(0, 1, 2, 3, 4, 5), by, down)].map((row) => trials.number[row]);
    expect(order("value", false)).toEqual([5, 2, 4, 1, 3, 6]);
    expect(order("value", true)).toEqual([2, 5, 1, 4, 3, 6]);
    expect(order("reported", true)).toEqual([6, 1, 4, 2, 3, 5]);
    expect(order("reported", false)).toEqual([4, 1, 6, 2, 3, 5]);
    expect(order("step", true), "a column without what is reached").toEqual([6, 5, 4, 2, 1, 3]);
  });

  test("of very many different texts no trial is shown another's", () => {
    const trials = new Trials();
    const numbers = [...Array(10_002).keys()];
    const words = numbers.map((number) => `w${number}`);
    trials.apply({ number: numbers, "parameters.x": { words, codes: numbers } });
    const column = trials.find("x");
    const shown = [0, 9_998, 9_999, 10_001].map((row) => column && trials.text(column, row));
    expect(shown).toEqual(["w0", "w9998", "…", "…"]);
  });

  test("are changed in their place by a later answer, whatever order it comes in", () => {
    const trials = new Trials();
    trials.apply(table([1, "running", null, { lr: 1 }], [2, "running", null, { lr: 2 }]));
    trials.apply(table([3, "waiting", null, { lr: 3 }], [1, "succeeded", 0.25, { lr: 1 }]));
    expect(trials.length).toBe(3);
    expect(trials.statusOf(trials.rowOf(1) ?? -1)).toBe("succeeded");
    expect(trials.value[trials.rowOf(1) ?? -1]).toBe(0.25);
    expect(trials.find("lr")?.data[trials.rowOf(3) ?? -1]).toBe(3);
  });

  test("grow past their first size without losing anything", () => {
    const trials = new Trials();
    for (let number = 1; number <= 1_000; number++)
      trials.apply(table([number, "succeeded", number, { x: number / 2, word: `w${number % 3}` }]));
    expect(trials.length).toBe(1_000);
    expect(trials.value[999]).toBe(1_000);
    expect(trials.find("x")?.data[0]).toBe(0.5);
    const word = trials.find("word");
    expect(word && trials.text(word, 999)).toBe("w1");
  });

  test("take a text in a column that was of numbers so far", () => {
    const trials = new Trials();
    trials.apply(
      table(
        [1, "succeeded", 1, { mixed: 3 }],
        [2, "succeeded", 1, { mixed: "auto" }],
        [3, "succeeded", 1, {}],
      ),
    );
    const mixed = trials.find("mixed");
    expect(mixed && [0, 1, 2].map((row) => trials.text(mixed, row))).toEqual(["3", "auto", "–"]);
  });

  test("a parameter that is not there yet has no value in earlier rows", () => {
    const trials = new Trials();
    trials.apply(table([1, "succeeded", 1, { a: 1 }]));
    trials.apply(table([2, "succeeded", 1, { a: 1, b: 0 }]));
    expect(trials.find("b")?.data[0]).toBeNaN();
    expect(trials.find("b")?.data[1]).toBe(0);
  });

  test("words come as codes beside a dictionary, and numbers that JSON has not as texts", () => {
    const trials = new Trials();
    trials.apply({
      number: [1, 2, 3],
      status: { words: ["failed", "succeeded"], codes: [1, 0, 1] },
      value: ["NaN", "Infinity", 2],
      "parameters.optimizer": { words: ["sgd"], codes: [0, -1, 0] },
    });
    expect([0, 1, 2].map((row) => trials.statusOf(row))).toEqual(["succeeded", "failed", "succeeded"]);
    expect(trials.value[1]).toBe(Number.POSITIVE_INFINITY);
    trials.apply({ number: [4], status: ["failed"], value: [null] });
    const [number, , value] = makeColumns("e", trials, [], "loss");
    expect([0, 1, 2, 3].map((row) => value.cell(row))).toEqual(["NaN", "∞", "2", "–"]);
    expect((number.cell(1) as VNode<{ to: string }>).props.to).toBe("/experiments/e/trials/2");
    const optimizer = trials.find("optimizer");
    expect(optimizer && [0, 1].map((row) => trials.text(optimizer, row))).toEqual(["sgd", "–"]);
  });

  test("nested choices have names with dots, and names that objects have already are only names", () => {
    const trials = new Trials();
    trials.apply(
      table([
        1,
        "succeeded",
        1,
        JSON.parse('{"layer": {"_name": "conv", "kernel": 3}, "__proto__": 7, "constructor": 1}'),
      ]),
    );
    expect([...trials.parameters.keys()].sort()).toEqual([
      "__proto__",
      "constructor",
      "layer._name",
      "layer.kernel",
    ]);
    expect(trials.find("layer.kernel")?.data[0]).toBe(3);
  });
});
