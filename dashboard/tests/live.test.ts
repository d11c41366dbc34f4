import { describe, expect, test } from "vitest";
import { topicsOf } from "../src/api/live";
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
    ).toEqual(["a", "c", "b", "cluster"]);
    expect(topicsOf({ name: "gap", data: "{}" })).toEqual(["*"]);
    expect(topicsOf({ name: "heartbeat", data: "{}" })).toEqual([]);
    expect(topicsOf({ name: "cluster", data: "{}" })).toEqual(["cluster"]);
    expect(topicsOf({ name: "patch", data: "not json" })).toEqual(["*"]);
  });
});
