import { afterEach, beforeEach, expect, test, vi } from "vitest";

/** A tab of one browser: modules of its own, and one channel with the others. */
async function tab() {
  vi.resetModules();
  const [client, live, session] = await Promise.all([
    import("../src/api/client"),
    import("../src/api/live"),
    import("../src/api/session"),
  ]);
  return { client, live, session };
}

class Channel {
  static all: Channel[] = [];
  onmessage: ((message: { data: unknown }) => void) | null = null;

  constructor() {
    Channel.all.push(this);
  }

  postMessage(data: unknown): void {
    for (const one of Channel.all) if (one !== this) one.onmessage?.({ data });
  }
}

const HELLO = "id: 7-a\nevent: begin\ndata: {}\n\n";
let isGood = true;
let refused = 0; // the status with which streams are refused; 0 where nobody answers, 200 where they are not
let ends: (() => void)[] = [];

function service(path: string): Promise<Response> {
  if (!path.endsWith("/events")) return Promise.resolve(Response.json({ name: "ann", role: "operator" }));
  if (refused === 0) return Promise.reject(new TypeError("Failed to fetch"));
  if (refused !== 200) return Promise.resolve(Response.json({}, { status: refused }));
  if (!isGood) return Promise.resolve(Response.json({}, { status: 401 }));
  const body = new ReadableStream({
    start(stream) {
      stream.enqueue(new TextEncoder().encode(HELLO));
      ends.push(() => stream.close());
    },
  });
  return Promise.resolve(new Response(body));
}

async function settle(ms = 0): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
  await vi.advanceTimersByTimeAsync(ms);
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
}

beforeEach(() => {
  isGood = true;
  refused = 200;
  ends = [];
  Channel.all = [];
  let holder: unknown;
  const request = (_: string, lead: () => Promise<never>) => {
    holder ??= lead(); // the first tab leads
    return holder;
  };
  vi.stubGlobal("BroadcastChannel", Channel);
  vi.stubGlobal("navigator", { locks: { request } });
  vi.stubGlobal("fetch", service);
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance", "Date"] });
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

async function twoTabs() {
  const [one, other] = [await tab(), await tab()];
  one.live.startLive();
  await settle();
  other.live.startLive();
  await settle();
  expect([one, other].map(({ live }) => live.connection.value)).toEqual(["live", "live"]);
  return [one, other];
}

function endSession(): void {
  isGood = false;
  endStreams();
}

function endStreams(): void {
  for (const end of ends.splice(0)) end();
}

test("a session that has ended is told in every tab, though none of them reads anything", async () => {
  const tabs = await twoTabs();
  endSession();
  await settle(1_000);
  for (const { client, live } of tabs) {
    expect(client.signedOut.value).toBe(true);
    expect(live.connection.value).toBe("connecting");
  }
});

test("what turned everybody away for a moment lets them go on by itself, without a word to the others", async () => {
  const tabs = await twoTabs();
  const before = tabs.map(({ live }) => live.signIns.value);
  endSession();
  await settle(1_000);
  isGood = true;
  await settle(4_000);
  for (const { client, live } of tabs) {
    expect(client.signedOut.value).toBe(false);
    expect(live.connection.value).toBe("live");
  }
  endStreams(); // a stream that only ends, as where its reader was slow
  await settle(1_000);
  expect(tabs.map(({ live }) => live.signIns.value)).toEqual(before.map((count) => count + 1));
});

test("a service is back when it tells what changes, and not when a standby answers in its place", async () => {
  const tabs = await twoTabs();
  const said = () => tabs.map(({ live }) => [live.connection.value, live.cameBackAt.value !== null]);
  refused = 0;
  endStreams();
  await settle(1_000);
  expect(said()).toEqual([
    ["lost", false],
    ["lost", false],
  ]);
  refused = 503;
  await settle(4_000);
  expect(said()).toEqual([
    ["polling", false],
    ["polling", false],
  ]);
  refused = 200;
  await settle(4_000);
  expect(said()).toEqual([
    ["live", true],
    ["live", true],
  ]);
});

test("who signs out in one tab is signed out in the others", async () => {
  const [one, other] = await twoTabs();
  await other.session.signOut();
  expect([one, other].map(({ client }) => client.signedOut.value)).toEqual([true, true]);
});

test("somebody else who signs in in one tab is who the others show, and they look at everything again", async () => {
  const [one, other] = await twoTabs();
  const looked = vi.fn();
  one.live.watch(["an experiment"], looked);
  const before = one.live.signIns.value;
  await other.session.signIn({ token: "t" });
  expect(one.live.signIns.value).toBe(before + 1);
  expect(looked).toHaveBeenCalledWith(true);
});

test("a stream that was turned away before somebody signed in turns nobody away after it", async () => {
  const [one] = await twoTabs();
  let turnAway = () => {};
  vi.stubGlobal("fetch", (path: string) =>
    path.endsWith("/events")
      ? new Promise((resolve) => {
          turnAway = () => resolve(Response.json({}, { status: 401 }));
        })
      : service(path),
  );
  endStreams();
  await settle(1_000);
  await one.session.signIn({ token: "t" });
  vi.stubGlobal("fetch", service);
  turnAway();
  await settle();
  expect([one.client.signedOut.value, one.live.connection.value]).toEqual([false, "live"]);
});
