import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { KeyOfBody, signedOut } from "../src/api/client";
import { caller, signOut } from "../src/api/session";
import {
  forgetDraft,
  forgetWritten,
  keepDraft,
  keepWritten,
  keptDraft,
  keptWritten,
} from "../src/state/draft";

let there: Map<string, string>;

beforeEach(() => {
  there = new Map();
  vi.stubGlobal("sessionStorage", {
    getItem: (name: string) => there.get(name) ?? null,
    setItem: (name: string, text: string) => there.set(name, text),
    removeItem: (name: string) => there.delete(name),
  });
});
afterEach(() => {
  vi.unstubAllGlobals();
});

const written = { text: "name: [half", asked: ["{}", "key"] as [string, string] };

test("what was written and not started is there again, for who wrote it where it was begun", () => {
  keepDraft("ann", null, written);
  expect(keptDraft("ann", null)).toEqual(written);
  expect(keptDraft("bob", null)).toBeNull();
  expect(keptDraft("ann", "8f3k2")).toBeNull();
  keepDraft("ann", "8f3k2", written);
  expect(keptDraft("ann", "8f3k2")).toEqual(written);
  forgetDraft();
  expect(keptDraft("ann", "8f3k2")).toBeNull();
  there.set("draft", "{damaged");
  expect(keptDraft("ann", null)).toBeNull();
});

test("what else was written is there again by its name, for who wrote it, until it is sent or given up", () => {
  keepWritten("ann", "the space of 8f3k2", { text: "{half", tag: null });
  keepWritten("ann", "__proto__", ["whatever its name is"]);
  expect(keptWritten("ann", "the space of 8f3k2")).toEqual({ text: "{half", tag: null });
  expect(keptWritten("ann", "__proto__")).toEqual(["whatever its name is"]);
  expect(keptWritten("bob", "the space of 8f3k2")).toBeUndefined();
  expect(keptWritten("ann", "the space of 7d2h1")).toBeUndefined();
  forgetWritten("ann", "__proto__");
  expect(keptWritten("ann", "the space of 8f3k2")).toEqual({ text: "{half", tag: null });
  forgetWritten("ann", "the space of 8f3k2");
  expect(there.size).toBe(0);
  there.set("written", "{damaged");
  expect(keptWritten("ann", "the space of 8f3k2")).toBeUndefined();
  keepWritten("ann", "the space of 8f3k2", 1);
  expect(keptWritten("ann", "the space of 8f3k2")).toBe(1);
});

test("what one has written is not lost by what another writes or gives up there", () => {
  keepWritten("ann", "the note of 8f3k2", "hers");
  keepWritten("bob", "the note of 8f3k2", "his");
  expect(keptWritten("ann", "the note of 8f3k2")).toBe("hers");
  forgetWritten("bob", "the note of 8f3k2");
  expect(keptWritten("bob", "the note of 8f3k2")).toBeUndefined();
  expect(keptWritten("ann", "the note of 8f3k2")).toBe("hers");
});

test("where the browser keeps no more, what was written last is kept, and of a text that is too long what was kept before", () => {
  vi.stubGlobal("sessionStorage", {
    getItem: (name: string) => there.get(name) ?? null,
    setItem: (name: string, text: string) => {
      if (text.length > 200) throw new Error("QuotaExceededError");
      there.set(name, text);
    },
    removeItem: (name: string) => there.delete(name),
  });
  keepWritten("ann", "the note of 8f3k2", "a".repeat(100));
  keepWritten("ann", "the note of 7d2h1", "b");
  keepWritten("ann", "the note of 7d2h1", "b".repeat(50));
  expect(keptWritten("ann", "the note of 7d2h1")).toBe("b".repeat(50));
  expect(keptWritten("ann", "the note of 8f3k2")).toBeUndefined();
  keepWritten("ann", "the note of 7d2h1", "b".repeat(500));
  expect(keptWritten("ann", "the note of 7d2h1")).toBe("b".repeat(50));
});

test("a start that had no answer is the same one after the page was read anew", () => {
  const keys = new KeyOfBody();
  const key = keys.of({ name: "x" });
  keepDraft("ann", null, { text: "name: x", asked: keys.last });
  const again = new KeyOfBody();
  again.last = keptDraft("ann", null)?.asked ?? ["", ""];
  expect(again.of({ name: "x" })).toBe(key);
  expect(again.of({ name: "y" })).not.toBe(key);
});

test("who signs out leaves no draft to the next one", async () => {
  keepDraft("ann", null, written);
  keepWritten("ann", "the space of 8f3k2", "{half");
  vi.stubGlobal("fetch", () => Promise.resolve(new Response(null, { status: 204 })));
  await signOut();
  expect(there.size).toBe(0);
});

test("whose session has ended is nobody until the next one is known", () => {
  signedOut.value = false;
  caller.value = { name: "ann", role: "operator", session: null };
  signedOut.value = true;
  expect(caller.value).toBeNull();
});

test("a browser that keeps nothing forgets, and the page goes on", () => {
  vi.stubGlobal("sessionStorage", {
    getItem: () => null,
    setItem: () => {
      throw new DOMException("it is full", "QuotaExceededError");
    },
    removeItem: () => undefined,
  });
  keepDraft("ann", null, written);
  expect(keptDraft("ann", null)).toBeNull();
  vi.stubGlobal("sessionStorage", null);
  forgetDraft();
  expect(keptDraft("ann", null)).toBeNull();
});
