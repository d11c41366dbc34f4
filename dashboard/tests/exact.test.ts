import { describe, expect, test } from "vitest";
import yaml from "yaml";
import { KeyOfBody } from "../src/api/client";
import { exactly, floats, parsed, unlessSafe } from "../src/api/exact";
import { typed } from "../src/parts/experiment-dialogs";
import { write } from "../src/parts/values";
import { Trials } from "../src/state/columns";
import { cell, exact, numeric } from "../src/state/format";
import { parametersOf, rangeWords } from "../src/state/space";

const BIG = "9007199254740993"; // 2^53 + 1
const TEXT = `{"seed":${BIG},"low":-${BIG}0,"x":0.1234567890123456789,"n":5,"said":"a: ${BIG}, b"}`;

describe("whole numbers beyond 2^53", () => {
  test("are read and sent as they were written, and nothing else is another", () => {
    expect(parsed(TEXT)).toEqual({
      seed: BigInt(BIG),
      low: -BigInt(`${BIG}0`),
      x: 0.12345678901234568,
      n: 5,
      said: `a: ${BIG}, b`,
    });
    expect(JSON.stringify(parsed(`[${BIG}, 9007199254740991, 1]`))).toBe(`[${BIG},9007199254740991,1]`);
    expect(parsed(BIG)).toBe(BigInt(BIG));
  });

  test("are shown by their digits, and drawn about where they are", () => {
    const { seed } = parsed(TEXT) as { seed: unknown };
    expect([cell(seed), exact(seed), numeric(seed)]).toEqual([BIG, BIG, Number(BIG)]);
    for (const form of ["arguments", "environment", "yaml", "python", "json"] as const)
      expect(write(parsed(`{"seed":${BIG}}`) as never, form)).toContain(BIG);
    expect(rangeWords(parsed(`{"type":"int","low":0,"high":${BIG}}`) as never)).toContain(`to ${BIG}`);
  });

  test("stay what they are in an experiment file and in a field", () => {
    const file = yaml.stringify(parsed(TEXT));
    expect(file).toContain(`seed: ${BIG}\n`);
    expect(yaml.parse(file, unlessSafe, { intAsBigInt: true })).toEqual(parsed(TEXT));
    const [form] = parametersOf({ seed: parsed(`{"type":"int","low":0,"high":${BIG}}`) } as never);
    expect([typed(BIG, form), typed("7", form), typed("0.5", form)]).toEqual([BigInt(BIG), 7, 0.5]);
  });

  test("make a column of trials one of texts, which lose nothing", () => {
    const trials = new Trials();
    const parameters = [{ seed: 7 }, parsed(`{"seed":${BIG}}`)] as Record<string, unknown>[];
    trials.apply({
      number: [1, 2],
      status: ["succeeded", "succeeded"],
      reason: ["launched", "launched"],
      value: [0.5, 0.25],
      parameters,
    });
    const seed = trials.find("seed");
    expect(seed && [0, 1].map((row) => trials.text(seed, row))).toEqual(["7", BIG]);
  });
});

describe("floats that are whole numbers", () => {
  const SPACE =
    '{"x":{"choices":[1.0,-2.0,1e+30,0.5,3]},"low":{"type":"float","low":-0.0,"high":2.0},"n":9007199254740993}';
  const AGAIN =
    '{"x":{"choices":[1.0,-2.0,1.0e+30,0.5,3]},"low":{"type":"float","low":-0.0,"high":2.0},"n":9007199254740993}';

  test("are sent as they were read", () => {
    expect(JSON.stringify(exactly(SPACE))).toBe(AGAIN);
    const keys = new KeyOfBody();
    expect(keys.of(exactly("[1.0]") as never)).not.toBe(keys.of(exactly("[1]") as never));
  });

  test("stay floats in an experiment file, whoever wrote it", () => {
    const file = yaml.stringify(exactly(SPACE), { customTags: floats });
    expect(file).toContain("- 1.0\n");
    expect(file).toContain("- 3\n");
    const asked = (text: string) => yaml.parse(text, unlessSafe, { intAsBigInt: true, customTags: floats });
    expect(JSON.stringify(asked(file))).toBe(AGAIN);
    expect(JSON.stringify(asked("[1., +2.00, .5, 1e3, -1.5e1, 2e-1, 7, .inf, 1.0.0, '1.0', 1-2]"))).toBe(
      '[1.0,2.0,0.5,1000.0,-15.0,0.2,7,null,"1.0.0","1.0","1-2"]',
    );
  });

  test("are shown and chosen as options, and drawn as numbers", () => {
    const [x, low] = parametersOf(exactly(SPACE) as never);
    expect(rangeWords(x.range)).toBe("one of 1.0, -2.0, 1.0e+30, 0.5, 3");
    expect(JSON.stringify(["1.0", "3"].map((text) => typed(text, x)))).toBe("[1.0,3]");
    expect(JSON.stringify(["2", "2.5"].map((text) => typed(text, low)))).toBe("[2.0,2.5]");
    expect([low.low, low.high]).toEqual([-0, 2]);
  });
});
