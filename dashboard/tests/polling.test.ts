import { expect, test, vi } from "vitest";
import { startLive } from "../src/api/live";
import { keepWritten, keptWritten } from "../src/state/draft";

/** Where the service has no stream: it is asked again and again, and tells of nothing by itself. */
test("while the page polls, what was written of an experiment goes once the service says that it is gone", async () => {
  vi.useFakeTimers();
  const there = new Map<string, string>();
  vi.stubGlobal("sessionStorage", {
    getItem: (name: string) => there.get(name) ?? null,
    setItem: (name: string, text: string) => there.set(name, text),
    removeItem: (name: string) => there.delete(name),
  });
  vi.stubGlobal(
    "BroadcastChannel",
    class {
      postMessage() {}
    },
  );
  const asked: string[] = [];
  const refused = (status: number, told: object) => Response.json(told, { status });
  vi.stubGlobal("fetch", async (path: string) => {
    asked.push(path);
    if (path.endsWith("/gone")) return refused(404, { type: "urn:tuner:problem:not-found" });
    if (path.endsWith("/there")) return Response.json({ id: "there" });
    return path.endsWith("/away")
      ? refused(404, { title: "of a proxy" })
      : refused(503, { title: "no stream" });
  });
  const looks = () => asked.filter((path) => path.endsWith("/there")).length;
  for (const id of ["gone", "there", "away"]) keepWritten("ann", `the note of ${id}`, id);
  keepWritten("ann", "another thing", 1);

  startLive();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(keptWritten("ann", "the note of gone")).toBeUndefined();
  expect(keptWritten("ann", "the note of there")).toBe("there");
  expect(keptWritten("ann", "the note of away")).toBe("away");
  expect(looks(), "not each time").toBe(1);
  await vi.advanceTimersByTimeAsync(30_000);
  expect(looks()).toBe(2);
  vi.stubGlobal("fetch", () => new Promise(() => {}));
  vi.useRealTimers();
});
