import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { touch } from "../src/api/live";
import { makeResource, REST } from "../src/api/resource";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance", "Date"] });
  vi.setSystemTime(1_000_000_000_300);
});
afterEach(() => {
  vi.useRealTimers();
});

/** A read that takes `took` ms; `at` has when each began. */
function reader(took: number) {
  const at: number[] = [];
  const load = () => {
    at.push(performance.now());
    return new Promise<number>((resolve) => setTimeout(() => resolve(at.length), took));
  };
  return { at, load };
}

/** What the service sends while it goes on changing. */
async function changes(resource: { again(): void }, everyMs: number, forMs: number): Promise<void> {
  for (let passed = 0; passed < forMs; passed += everyMs) {
    resource.again();
    await vi.advanceTimersByTimeAsync(everyMs);
  }
}

function opened(took: number, pace?: number) {
  const { at, load } = reader(took);
  const watched: ((soon: boolean) => void)[] = [];
  const resource = makeResource(load, ["a"], pace, (_, changed) => {
    watched.push(changed);
    return () => {};
  });
  const close = resource.open();
  return { at, close, resource, again: () => watched.forEach((changed) => changed(false)) };
}

test("what changes all the time is looked at less and less often, down to once a second", async () => {
  const one = opened(5);
  await changes(one, 10, 6_000);
  const gaps = one.at.slice(1).map((at, place) => at - one.at[place]);
  expect(gaps.slice(0, 2)).toEqual([250, 500]);
  expect(gaps.length).toBeGreaterThan(5);
  expect(gaps.slice(3).every((gap) => gap === 1_000)).toBe(true);
  expect(gaps[2]).toBeLessThanOrEqual(1_500);
  one.close();
});

test("what is told twice a second, too, is looked at once a second", async () => {
  const one = opened(5);
  await changes(one, 500, 6_000);
  const gaps = one.at.slice(4).map((at, place) => at - one.at[place + 3]);
  expect(gaps.length).toBeGreaterThan(3);
  expect(gaps.every((gap) => gap === 1_000)).toBe(true);
  one.close();
});

test("what has a pace of its own is looked at half as often", async () => {
  const one = opened(5, 1_500);
  await changes(one, 10, 14_000);
  const gaps = one.at.slice(1).map((at, place) => at - one.at[place]);
  expect(gaps[0]).toBe(1_500);
  expect(gaps.slice(2)).toEqual([3_000, 3_000, 3_000].slice(0, gaps.length - 2));
  expect(gaps.length).toBeGreaterThan(3);
  one.close();
});

test("two pages that look all the time do so at the same moments", async () => {
  const one = opened(5);
  await vi.advanceTimersByTimeAsync(130);
  const other = opened(20);
  for (let passed = 0; passed < 6_000; passed += 10) {
    one.again();
    other.again();
    await vi.advanceTimersByTimeAsync(10);
  }
  expect(one.at.at(-1)).toBe(other.at.at(-1));
  expect(one.at.at(-2)).toBe(other.at.at(-2));
  one.close();
  other.close();
});

test("the last change is always read, and after a rest the first at once and the next soon again", async () => {
  const one = opened(5);
  await changes(one, 10, 5_000);
  const told = performance.now();
  one.again();
  await vi.advanceTimersByTimeAsync(4_000);
  expect(one.at.at(-1)).toBeGreaterThanOrEqual(told);
  expect(one.at.at(-1)).toBeLessThanOrEqual(told + 1_000);
  const before = performance.now();
  one.again();
  await vi.advanceTimersByTimeAsync(1);
  expect(one.at.at(-1)).toBe(before);
  one.again();
  await vi.advanceTimersByTimeAsync(251);
  expect(one.at.at(-1)).toBe(before + 250);
  one.close();
});

test("a service that is slow to answer is asked less often, but never less than every three seconds", async () => {
  const slow = opened(100);
  await changes(slow, 50, 4_000);
  expect(slow.at[2] - slow.at[1]).toBe(REST * 100);
  slow.close();
  const stuck = opened(1_000);
  await changes(stuck, 50, 10_000);
  expect(stuck.at[2] - stuck.at[1]).toBe(3_000);
  stuck.close();
});

test("the first change after a rest is read at once", async () => {
  const one = opened(100);
  await vi.advanceTimersByTimeAsync(5_000);
  const before = performance.now();
  one.again();
  await vi.advanceTimersByTimeAsync(1);
  expect(one.at.at(-1)).toBe(before);
  one.close();
});

test("what was done here is looked at at once, after what is being read, and in place of what was to come", async () => {
  const { at, load } = reader(100);
  const resource = makeResource(load, ["mine"]);
  const close = resource.open();
  await vi.advanceTimersByTimeAsync(50);
  touch("mine"); // while the first is being read
  await vi.advanceTimersByTimeAsync(51);
  expect(at).toHaveLength(2);
  expect(at[1] - at[0]).toBeLessThanOrEqual(101);
  await vi.advanceTimersByTimeAsync(100);
  resource.reload();
  await vi.advanceTimersByTimeAsync(1);
  expect(at).toHaveLength(3);
  await vi.advanceTimersByTimeAsync(5_000);
  expect(at, "nobody said that anything has changed").toHaveLength(3);
  close();
});
