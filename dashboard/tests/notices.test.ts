import type { VNode } from "preact";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { signedOut } from "../src/api/client";
import { signIns } from "../src/api/live";
import { act, remove } from "../src/parts/actions";
import { Notices, say, settled } from "../src/parts/notices";

type Shown = VNode<{ class: string; children: [VNode<{ children: string }>, VNode<{ onClick(): void }>] }>;
const shown = () => (Notices() as VNode<{ children: Shown[] }>).props.children;
const words = () => shown().map((one) => one.props.children[0].props.children);

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  signedOut.value = !signedOut.value;
  signedOut.value = false;
  vi.runAllTimers();
  vi.useRealTimers();
});

test("what was done is said for a few seconds, what went wrong until somebody closes it", () => {
  say("Paused");
  say("it has ended", "bad");
  vi.advanceTimersByTime(3_600_000);
  expect(words()).toEqual(["it has ended"]);
  shown()[0].props.children[1].props.onClick();
  expect(words()).toEqual([]);
});

test("what is tried again has one outcome, and trouble with something else stays", async () => {
  const refused = () => Promise.reject(new Error("no room"));
  await act(refused, "Paused", "e1");
  await act(refused, "Paused", "e2");
  await act(refused, "Paused", "e1");
  expect(words()).toHaveLength(2);
  await act(() => Promise.resolve(), "Paused", "e1");
  expect(shown().map((one) => one.props.class)).toEqual(["notice bad", "notice good"]);
});

test("what is done to another is not the same that is tried again", async () => {
  vi.stubGlobal("fetch", (address: string) =>
    Promise.resolve(
      address.endsWith("e1")
        ? Response.json({ detail: "e1 runs" }, { status: 409 })
        : new Response(null, { status: 204 }),
    ),
  );
  await remove("e1");
  await remove("e2");
  expect(words()).toEqual(["e1 runs", "Removed"]);
  await remove("e1");
  expect(words()).toEqual(["Removed", "e1 runs"]);
  vi.unstubAllGlobals();
});

test("what went well at last without a word takes the trouble with it away", () => {
  say("the disk is full", "bad", "the log");
  say("it has ended", "bad", "another");
  settled("the log");
  expect(words()).toEqual(["it has ended"]);
});

test("however much is done, it takes no trouble away, of which the newest are shown", () => {
  for (let place = 1; place <= 6; place++) say(`trouble ${place}`, "bad");
  for (let place = 1; place <= 6; place++) say(`done ${place}`);
  expect(words()).toEqual([
    ...[3, 4, 5, 6].map((place) => `trouble ${place}`),
    ...[3, 4, 5, 6].map((place) => `done ${place}`),
  ]);
});

test("trouble of one session is not shown to who signed in in another tab", () => {
  say("the trial alpha has ended", "bad");
  signIns.value++;
  expect(words()).toEqual([]);
});

test("trouble of one session is not shown to the next one", () => {
  say("the trial alpha has ended", "bad");
  signedOut.value = true;
  say("there is no such session", "bad");
  signedOut.value = false;
  expect(words()).toEqual([]);
});
