// What the first page says of the service.
import { expect, test } from "vitest";
import { serviceWords } from "../src/api/readiness";

const FINE = {
  ready: true,
  role: "active" as const,
  parts: { database: "ok", dispatcher: "ok" },
  warnings: {},
};
const ENDS = "the TLS certificate /etc/cert.pem ends in 9 days";
const WARNED = { ...FINE, warnings: { certificate: ENDS } };

test("a trouble comes before a warning, and a warning before all is well", () => {
  expect(serviceWords(FINE)).toEqual({ words: "healthy", tone: "good-text" });
  expect(serviceWords(WARNED)).toEqual({ words: ENDS, tone: "warn-text" });
  const full = { ...WARNED, parts: { ...FINE.parts, database: "the disk is full" } };
  expect(serviceWords(full)).toEqual({ words: "database: the disk is full", tone: "bad-text" });
});

test("a standby is called one, and what nobody knows yet is not called healthy", () => {
  expect(serviceWords({ ...FINE, ready: false, role: "standby" }).words).toBe("a standby");
  expect(serviceWords(undefined).words).toBe("…");
});
