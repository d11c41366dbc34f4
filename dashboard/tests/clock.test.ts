import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ask } from "../src/api/client";
import { ago } from "../src/state/format";
import { heardDate, serviceNow } from "../src/state/service-clock";

const HOUR = 3_600_000;
const AT = Date.parse("2026-03-01T12:00:00Z");

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["Date"] });
  vi.setSystemTime(AT);
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  heardDate(new Date().toUTCString());
});

test.each([-3 * HOUR, 3 * HOUR])(
  "how long ago something was is told by the service's clock, %d ms off",
  async (off) => {
    const begun = AT + off - 2 * HOUR; // as the service tells it
    vi.stubGlobal("fetch", async () =>
      Response.json({}, { headers: { date: new Date(AT + off).toUTCString() } }),
    );
    await ask("GET", "x");
    expect(serviceNow() - AT).toBe(off);
    expect(ago(begun, serviceNow())).toBe("2 h ago");
  },
);

test("an answer that was on its way for a moment, and one without a date, change nothing", () => {
  heardDate(new Date(AT - 2_000).toUTCString());
  heardDate(null);
  heardDate("no date");
  expect(serviceNow()).toBe(AT);
});
