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
let tell: (event: string) => void = () => {};

function service(path: string): Promise<Response> {
  if (!path.endsWith("/events")) return Promise.resolve(Response.json({ name: "ann", role: "operator" }));
  if (refused === 0) return Promise.reject(new TypeError("Failed to fetch"));
  if (refused !== 200) return Promise.resolve(Response.json({}, { status: refused }));
  if (!isGood) return Promise.resolve(Response.json({}, { status: 401 }));
  const body = new ReadableStream({
    start(stream) {
      tell = (event) => stream.enqueue(new TextEncoder().encode(event));
      tell(HELLO);
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

/** Of each tab what it keeps, "the note of" two experiments; that of `acting` is there while none of them is told. */
function keptBy(acting: number): Map<string, string>[] {
  const kept = Channel.all.map(() => new Map([["written", notesOf("8f3k2", "7d2h1")]]));
  const enter = (place: number) =>
    vi.stubGlobal("sessionStorage", {
      getItem: (name: string) => kept[place]?.get(name) ?? null,
      setItem: (name: string, text: string) => kept[place]?.set(name, text),
      removeItem: (name: string) => kept[place]?.delete(name),
    });
  Channel.all.forEach((channel, place) => {
    const hears = channel.onmessage;
    channel.onmessage = (message) => {
      enter(place);
      hears?.(message);
      enter(acting);
    };
  });
  enter(acting);
  return kept;
}

function notesOf(...ids: string[]): string {
  return JSON.stringify(
    Object.fromEntries(ids.map((id) => [JSON.stringify(["ann", `the note of ${id}`]), "…"])),
  );
}

test("who signs out leaves nothing written in any tab, and a session that has ended leaves all of it", async () => {
  const [, other] = await twoTabs();
  const kept = keptBy(1);
  endSession();
  await settle(1_000);
  expect(kept.map((one) => one.size)).toEqual([1, 1]);
  isGood = true;
  await other.session.signIn({ token: "t" });
  await other.session.signOut();
  expect(kept.map((one) => one.size)).toEqual([0, 0]);
});

test("what was written of an experiment is gone with it in every tab, and what was written of others is not", async () => {
  await twoTabs();
  const kept = keptBy(0);
  tell('id: 8-a\nevent: patch\ndata: {"experiments":[{"id":"7d2h1"}],"removed":["8f3k2","h1"]}\n\n');
  await settle();
  expect(kept.map((one) => one.get("written"))).toEqual([notesOf("7d2h1"), notesOf("7d2h1")]);
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
