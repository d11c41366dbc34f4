import { describe, expect, test } from "vitest";
import { Trials } from "../src/state/columns";
import {
  compile,
  conjuncts,
  FilterError,
  parameterInFilters,
  parseFilter,
  passing,
  withBrush,
  writeFilter,
} from "../src/state/filters";

function trials(): Trials {
  const made = new Trials();
  made.apply({
    number: [1, 2, 3, 4],
    status: ["succeeded", "failed", "early_stopped", "running"],
    reason: ["final_metric", "exit_code", "stopped_by_assessor", "launched"],
    value: [0.1, null, 0.9, null],
    "parameters.lr": [0.001, 0.01, 0.1, 1],
    "parameters.optimizer": { words: ["sgd", "adam", "ada max"], codes: [0, 1, 2, -1] },
    "parameters.a name <b>": [1, 2, 3, 4],
  });
  return made;
}

function found(text: string): number[] {
  const all = trials();
  return [...passing(all, compile(parseFilter(text), all))].map((row) => all.number[row]);
}

describe("parameters that are called as what every trial has", () => {
  function called(text: string): number[] {
    const all = new Trials();
    all.apply({
      number: [1, 2, 3],
      status: ["succeeded", "succeeded", "failed"],
      value: [0.5, 3, null],
      "parameters.value": [3, 0.5, 7],
      "parameters.status": { words: ["failed", "ok"], codes: [0, 1, 1] },
      "parameters.parameters.value": [1, 2, 3],
      "parameters.parameters.alone": [1, 2, 3],
    });
    return [...passing(all, compile(parseFilter(text), all))].map((row) => all.number[row]);
  }

  test.each([
    ["value < 1", [1]],
    ["parameters.value < 1", [2]],
    ["status = failed", [3]],
    ["parameters.status = failed", [1]],
    ["parameters.parameters.value = 3", [3]],
    ["parameters.alone = 2", [2]],
    ["parameters.parameters.alone = 2", [2]],
  ])("%s", (text, numbers) => {
    expect(called(text)).toEqual(numbers);
  });

  test("an axis writes a name into the filter that is read as its own", () => {
    const names = ["lr", "value", "status", "parameters.value", "parameters.lr"];
    const written = names.map(parameterInFilters);
    expect(written.slice(0, 3)).toEqual(["lr", "parameters.value", "parameters.status"]);
    expect(new Set(written).size).toBe(names.length);
  });
});

describe("a filter", () => {
  test.each([
    ["", [1, 2, 3, 4]],
    ["status = failed", [2]],
    ["failed or early_stopped", [2, 3]],
    ["lr < 0.05 and value > 0", [1]],
    ["lr in 0.005..0.5", [2, 3]],
    ["lr in -1..0.001", [1]],
    ["optimizer in {sgd, adam}", [1, 2]],
    ['optimizer = "ada max"', [3]],
    ["optimizer ~ ADA", [2, 3]],
    ["optimizer != sgd", [2, 3]],
    ["not succeeded", [2, 3, 4]],
    ["not (lr > 0.005)", [1]],
    ["#3", [3]],
    ["#1 or #4", [1, 4]],
    ["lr >= 0.01 lr <= 0.1", [2, 3]],
    ['"a name <b>" >= 3', [3, 4]],
    ["value = NaN", [2, 4]],
    ["adam", [2]],
    ["stopped_by_assessor", [3]],
    ["reason = exit_code", [2]],
  ])("%s", (text, numbers) => {
    expect(found(text)).toEqual(numbers);
  });

  test.each([
    "lr <",
    "(lr > 1",
    "lr in 1",
    'optimizer = "sgd',
    "lr > 1 )",
    "optimizer in {sgd",
    "#x",
    "and",
    "{",
  ])("%s is refused with its place", (text) => {
    expect(() => parseFilter(text)).toThrow(FilterError);
  });

  test("a name that is no column is told, with those that there are", () => {
    expect(() => found("learning_rate > 1")).toThrow(/there is no column learning_rate; .*lr/);
  });

  test("is bounded in length and depth", () => {
    expect(() => parseFilter("x".repeat(5_000))).toThrow(FilterError);
    expect(() => parseFilter(`${"(".repeat(80)}lr > 1${")".repeat(80)}`)).toThrow(/nested too deeply/);
  });

  test.each([
    "status = failed and lr in 0.001..0.01",
    '"a b" = "c d" or not (#3)',
    "optimizer in {sgd, adam}",
  ])("%s is the same when it is written and read again", (text) => {
    const filter = parseFilter(text);
    expect(parseFilter(writeFilter(filter))).toEqual(filter);
  });

  test("a brush takes the place of the one before on the same axis, and leaves the rest", () => {
    const before = parseFilter("failed and lr in 1..2");
    const after = withBrush(before, "lr", { is: "range", name: "lr", low: 3, high: 4 });
    expect(writeFilter(after)).toBe("failed and lr in 3..4");
    expect(writeFilter(withBrush(after, "lr", null))).toBe("failed");
    expect(conjuncts(withBrush(parseFilter("lr in 1..2"), "lr", null))).toEqual([]);
  });
});
