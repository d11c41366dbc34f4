// Parameters may have any name, also those that every object of JavaScript has.
import { expect, test } from "vitest";
import type { Values } from "../src/api/shapes";
import { spaceChanges } from "../src/pages/experiment-space";
import { givenOf } from "../src/parts/experiment-dialogs";
import { Trials } from "../src/state/columns";
import { at, put } from "../src/state/draft";
import { compile, FilterError, parseFilter } from "../src/state/filters";
import { parametersOf } from "../src/state/space";

const NAMES = ["constructor", "__proto__", "toString"];
const RANGE = { type: "float", low: 0, high: 1 };
const space = JSON.parse(
  `{${NAMES.map((name) => `${JSON.stringify(name)}: ${JSON.stringify(RANGE)}`).join()}}`,
) as Values;

test("a trial of one's own is given all of them, and none that stands empty", () => {
  const forms = parametersOf(space);
  const texts = Object.fromEntries(NAMES.map((name) => [name, "0.5"]));
  expect(Object.entries(givenOf(forms, texts))).toEqual(NAMES.map((name) => [name, 0.5]));
  expect(Object.keys(givenOf(forms, {}))).toEqual([]);
});

test.each(NAMES)("%s comes into a draft and out of it", (name) => {
  const pointer = `/search_space/${name}`;
  const there = put({ search_space: { x: RANGE } }, pointer, RANGE);
  expect(Object.keys(there.search_space as Values)).toEqual(["x", name]);
  expect(at(there, pointer)).toEqual(RANGE);
  expect(at({ search_space: {} }, pointer)).toBeUndefined();
  expect(put(there, pointer, undefined)).toEqual({ search_space: { x: RANGE } });
});

test("what a space had not before is new in it", () => {
  const before = spaceChanges({}, space).map((one) => [one.name, one.before]);
  expect(before).toEqual(NAMES.map((name) => [name, null]));
});

test("a filter knows them as columns where there are such, and as texts", () => {
  const trials = new Trials();
  trials.apply({ number: [1, 2], status: ["failed", "failed"], "parameters.x": ["my constructor", "other"] });
  expect(() => compile(parseFilter("constructor > 3"), trials)).toThrow(FilterError);
  const said = compile(parseFilter("constructor"), trials);
  expect([0, 1].map(said)).toEqual([true, false]);
});
