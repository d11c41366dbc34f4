import { describe, expect, test } from "vitest";
import { HEALTH, NODES, topicsOf, touch, watch } from "../src/api/live";
import { Seen } from "../src/api/seen";
import { EventParser } from "../src/api/sse";

describe("the stream", () => {
  const whole =
    'retry: 1000\nid: 7-a\nevent: patch\ndata: {"x":1}\n\n: a comment\n\nevent: heartbeat\ndata: {}\n\n';

  test("events are the same in whatever pieces they come", () => {
    for (let size = 1; size < whole.length; size++) {
      const parser = new EventParser();
      const found = [];
      for (let at = 0; at < whole.length; at += size) found.push(...parser.push(whole.slice(at, at + size)));
      expect(found).toEqual([
        { id: "7-a", name: "patch", data: '{"x":1}' },
        { id: "7-a", name: "heartbeat", data: "{}" },
      ]);
    }
  });

  test("an event says what is to be read anew; what is not understood says everything", () => {
    expect(
      topicsOf({ name: "patch", data: '{"experiments":[{"id":"a"}],"removed":["b"],"trials":{"c":{}}}' }),
    ).toEqual(["a", "a/outcomes", "c", "b", "b/outcomes", "b/removed", "cluster"]);
    expect(topicsOf({ name: "gap", data: "{}" })).toEqual(["*"]);
    expect(topicsOf({ name: "heartbeat", data: "{}" })).toEqual([HEALTH]);
    expect(topicsOf({ name: "cluster", data: "{}" })).toEqual(["cluster", NODES]);
    expect(topicsOf({ name: "patch", data: "not json" })).toEqual(["*"]);
  });

  test("that the service lives is no change of anything", () => {
    const called: string[] = [];
    const ends = [HEALTH, "*", "a"].map((topic) => watch([topic], () => called.push(topic)));
    touch(HEALTH);
    expect(called).toEqual([HEALTH]);
    touch("a");
    expect(called).toEqual([HEALTH, "a", "*"]);
    touch("*");
    expect(called.slice(3).sort()).toEqual(["*", HEALTH, "a"]);
    for (const end of ends) end();
  });

  test("what is computed from outcomes is read anew only where one has changed, or may have", () => {
    const known = new Map<string, string>();
    const told = (counts: object, more: object = {}) =>
      topicsOf(
        {
          name: "patch",
          data: JSON.stringify({ experiments: [{ id: "a", counts, budget: { trials: 9 } }], ...more }),
        },
        known,
      ).includes("a/outcomes");
    expect(told({ running: 4 }), "the first that is told").toBe(true);
    expect(told({ running: 4 }), "a report").toBe(false);
    expect(told({ running: 5, waiting: 1 }), "one starts").toBe(false);
    expect(told({ running: 4, succeeded: 1 }), "one ended").toBe(true);
    expect(told({ running: 3, succeeded: 1, early_stopped: 1 }), "one was stopped").toBe(true);
    expect(told({ running: 3, succeeded: 1, early_stopped: 1 })).toBe(false);
    expect(told({ running: 3, succeeded: 1, early_stopped: 1 }, { search_spaces: ["a"] }), "its space").toBe(
      true,
    );
    expect(told({ running: 3, succeeded: 1, early_stopped: 1 }), "it was told of with the space alone").toBe(
      true,
    );
  });
});

describe("up to which event a page has everything", () => {
  test("nothing is named before an event was told, and after the stream has ended", () => {
    const seen = new Seen();
    seen.answered("a", "9-x");
    expect(seen.eventFor("a")).toBe("");
    seen.event("7-x");
    expect(seen.eventFor("b")).toBe("7-x");
    seen.ended();
    expect(seen.eventFor("b")).toBe("");
  });

  test("a plot never goes back: not behind its last answer, nor behind what was done here", () => {
    const seen = new Seen();
    seen.event("7-x");
    seen.answered("a", "12-x");
    expect(seen.eventFor("a")).toBe("12-x");
    expect(seen.eventFor("b")).toBe("7-x");
    seen.answered(null, "20-x");
    seen.answered(null, "19-x");
    expect(seen.eventFor("a")).toBe("20-x");
    seen.event("100-x");
    expect(seen.eventFor("a")).toBe("100-x");
  });

  test("of another database only what was told counts", () => {
    const seen = new Seen();
    seen.answered("a", "12-old");
    seen.answered(null, "13-old");
    seen.event("2-new");
    expect(seen.eventFor("a")).toBe("2-new");
  });

  test("what was read before the stream began, or is being read then, is read again where it may lack something", () => {
    const seen = new Seen();
    let behind = 0;
    seen.behind = () => behind++;
    seen.answered("a", "9-x");
    seen.begin("9-x");
    seen.answered("b", "9-x");
    expect(behind).toBe(0);
    seen.answered("c", "8-x");
    expect(behind, "it was being read").toBe(1);
    seen.answered("c", "10-x");
    seen.begin("10-x");
    expect(behind, "a and b were read before").toBe(2);
    seen.begin("1-y");
    expect(behind, "of another database").toBe(3);
  });
});
