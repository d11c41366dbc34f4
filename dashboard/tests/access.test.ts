import { afterEach, expect, test } from "vitest";
import { ACCESS, ROLES } from "../src/api/access";
import { caller, may, type Operation, roleMay } from "../src/api/session";

const operations = Object.keys(ACCESS) as Operation[];

afterEach(() => {
  caller.value = null;
});

test("an admin may do everything, a reader nothing of this, and an operator what changes experiments", () => {
  const of = (role: string) => operations.filter((operation) => roleMay(role, operation));
  expect(of("admin")).toEqual(operations);
  expect(of("read_only")).toEqual([]);
  expect(of("a role of another version")).toEqual([]);
  expect(of("operator")).toContain("pause_experiment");
  expect(of("operator")).not.toContain("drain_agent");
  expect(of("operator")).toEqual(operations.filter((operation) => ACCESS[operation] === "operate"));
});

test("who is signed in is offered what their role may do, and everything until that is known", () => {
  expect(operations.every(may)).toBe(true);
  const session = null;
  caller.value = { name: "ann", role: "operator", session };
  expect([may("stop_trial"), may("set_quota_group")]).toEqual([true, false]);
  caller.value = { name: "bob", role: "read_only", session };
  expect(operations.some(may)).toBe(false);
});

test("every access of an operation says whom it means", () => {
  for (const operation of operations) expect(ROLES[ACCESS[operation]].length).toBeGreaterThan(0);
});
