import { describe, expect, test } from "vitest";
import type { Agent, TrialDetail, Values } from "../src/api/shapes";
import { browserName } from "../src/pages/cluster-access";
import { Attempts, whereOf } from "../src/pages/trial-attempts";
import { awayWords } from "../src/parts/away";
import { shell, write } from "../src/parts/values";
import { amended, parseRoute } from "../src/state/address";
import { at, faultsAt, put } from "../src/state/draft";
import { ago, bytes, duration, exact, number, percent, timeOrDay } from "../src/state/format";
import { columnOfPath, labelOfPath, logNames, parametersOf, rangeWords } from "../src/state/space";
import {
  attemptEnd,
  exitWords,
  isTroubled,
  journalWords,
  reasonWords,
  whyExperiment,
} from "../src/state/words";

describe("parameters that analyses name by their path", () => {
  test.each([
    ["lr", "lr", "lr"],
    ["layer/conv/kernel", "layer.kernel", "layer / conv / kernel"],
    ["<b>p<~1b>", "<b>p</b>", "<b>p</b>"],
    ["a~01", "a~1", "a~1"],
  ])("%s is the column %s", (path, column, label) => {
    expect(columnOfPath(path)).toBe(column);
    expect(labelOfPath(path)).toBe(label);
  });
});

test("an experiment that paused by its own trouble is told from one that a person paused", () => {
  expect(isTroubled({ status: "paused", reason: "identical_failures" })).toBe(true);
  expect(isTroubled({ status: "paused", reason: "requested" })).toBe(false);
  expect(isTroubled({ status: "running", reason: "none" })).toBe(false);
  expect(isTroubled({ status: "completed", reason: "service_fault" })).toBe(true);
  expect(isTroubled({ status: "completed", reason: "budget_reached" })).toBe(false);
});

test("a time of another day is told with its day", () => {
  const at = new Date(2026, 10, 27, 23, 58, 7).getTime();
  expect(timeOrDay(at, at + 60_000)).toBe("23:58:07");
  expect(timeOrDay(at, at + 120_000)).toBe("11-27 23:58");
});

test("a value that is no number of JSON differs from none", () => {
  expect([Number.NaN, Number.POSITIVE_INFINITY, null, 1, "a"].map(exact)).toEqual([
    "NaN",
    "Infinity",
    "null",
    "1",
    "a",
  ]);
});

test("of the nodes that are not connected those are named that trials of the experiment are on", () => {
  const agent = (id: string, state: string, trials: string[]) => ({ id, state, trials }) as Agent;
  const agents = [
    agent("a", "away", ["x/1", "x/2", "xy/3"]),
    agent("b", "ready", ["x/4"]),
    agent("c", "away", ["y/1"]),
  ];
  expect(awayWords(agents, "x")).toBe("2 trials on a");
  expect(awayWords(agents, "z")).toBe("");
  const many = ["1", "2", "3", "4", "5"].map((name) => agent(`n${name}`, "away", [`x/${name}`]));
  expect(awayWords(many, "x")).toBe("1 trial on n1, 1 trial on n2, 1 trial on n3 and 2 further nodes");
});

describe("numbers, as people write them", () => {
  test.each([
    [0, "0"],
    [1, "1"],
    [1234, "1234"],
    [12345, "12\u202f345"],
    [0.1 + 0.2, "0.3"],
    [0.00001234567, "1.235e−5"],
    [-0.5, "−0.5"],
    [1e300, "1e300"],
    [Number.NaN, "NaN"],
    [Number.POSITIVE_INFINITY, "∞"],
    [null, "–"],
    [99999.5, "100\u202f000"],
  ])("%s is %s", (value, words) => {
    expect(number(value)).toBe(words);
  });

  test.each([
    [0.25, "0.3 s"],
    [0.04, "40 ms"],
    [0.0996, "0.1 s"],
    [0, "0 s"],
    [59, "59 s"],
    [61, "1 min 1 s"],
    [3_600, "1 h"],
    [7_265, "2 h 1 min"],
    [90_000, "1 d 1 h"],
    [null, "–"],
  ])("%s seconds are %s", (seconds, words) => {
    expect(duration(seconds)).toBe(words);
  });

  test("ages, sizes and shares", () => {
    expect(ago(1_000, 2_000)).toBe("just now");
    expect(ago(0, 120_000)).toBe("2 min ago");
    expect(bytes(1536)).toBe("1.5 KiB");
    expect(percent(0.5)).toBe("50 %");
  });
});

describe("the address", () => {
  test.each([
    ["/", { page: "experiments" }],
    ["/experiments/a%20b", { page: "experiment", id: "a b" }],
    ["/experiments/x/trials/7", { page: "trial", id: "x", number: 7 }],
    ["/experiments/x/trials/0", { page: "nowhere", path: "/experiments/x/trials/0" }],
    ["/experiments/%E0%A4%A", { page: "experiment", id: "%E0%A4%A" }],
    ["/cluster", { page: "cluster" }],
    ["/nothing", { page: "nowhere", path: "/nothing" }],
  ])("%s", (path, route) => {
    expect(parseRoute(path)).toEqual(route);
  });

  test("parts are changed and the others stay", () => {
    expect(amended("?tab=trials&q=a", { q: "lr < 1", tab: null })).toBe("?q=lr+%3C+1");
    expect(amended("?q=a", { q: "" })).toBe("");
  });
});

describe("a draft of an experiment", () => {
  test("is changed at a pointer and stays as it was elsewhere", () => {
    const before = { name: "x", budget: { trials: 3 } };
    const after = put(before, "/budget/parallel", 2);
    expect(after).toEqual({ name: "x", budget: { trials: 3, parallel: 2 } });
    expect(before).toEqual({ name: "x", budget: { trials: 3 } });
    expect(put(after, "/budget/trials", undefined)).toEqual({ name: "x", budget: { parallel: 2 } });
    expect(at(put({}, "/search_space/a~1b", 1), "/search_space/a~1b")).toBe(1);
  });

  test("mistakes stand at their field and above it", () => {
    const faults = [
      { pointer: "/budget/trials", detail: "too few" },
      { pointer: "/name", detail: "missing" },
    ];
    expect(faultsAt(faults, "/budget")).toHaveLength(1);
    expect(faultsAt(faults, "/na")).toHaveLength(0);
  });
});

describe("a search space", () => {
  test("both forms are understood", () => {
    const space = {
      lr: { _type: "loguniform", _value: [0.001, 1] },
      n: { type: "int", low: 1, high: 4 },
      o: { _type: "choice", _value: ["a", 2] },
      layer: { _type: "choice", _value: [{ _name: "conv", k: { _type: "qloguniform", _value: [1, 9, 1] } }] },
    };
    expect(parametersOf(space).map((form) => form.kind)).toEqual(["float", "int", "choice", "other"]);
    expect([...logNames(space)]).toEqual(["lr", "layer.k"]);
    expect(rangeWords(space.n)).toBe("a whole number from 1 to 4");
    expect(rangeWords("nonsense")).toBe('"nonsense"');
  });
});

describe("words", () => {
  const attempt = {
    attempt: 1,
    status: "exited" as const,
    message: "",
    agent: "local",
    pid: 1,
    restored_step: null,
    half_way: null,
    nodes: [],
    devices: [],
    peak_gpu_bytes: null,
    created_at: "",
    started_at: null,
    ended_at: null,
  };
  const end = {
    cause: "exited",
    code: 1,
    signal: null,
    stop_reason: null,
    peak_memory_bytes: null,
    memory_limit_bytes: null,
    processor_s: null,
    isolation: "fork",
    why_spawned: "",
    tail: "",
  };

  test("an attempt tells its end by the last line of its traceback", () => {
    expect(
      attemptEnd({ ...attempt, exit: { ...end, tail: "Traceback\n  x\nValueError: no such layer\n" } }),
    ).toBe("exit code 1: ValueError: no such layer");
    expect(
      attemptEnd({ ...attempt, exit: { ...end, tail: "RuntimeError: CUDA out of memory. Tried" } }),
    ).toBe("killed: RuntimeError: CUDA out of memory. Tried");
    expect(attemptEnd({ ...attempt, exit: { ...end, code: null, signal: 9 } })).toBe("ended by SIGKILL");
    expect(attemptEnd({ ...attempt, exit: { ...end, code: 0 } })).toBe("ended by itself");
  });

  test("a stop is a sentence with its reason", () => {
    const line = {
      line: 1,
      at: "",
      kind: "stop_advised",
      queues: [],
      payload: { number: 37, step: 12, message: "below the median of 9 trials" },
    };
    expect(journalWords(line, "loss")).toEqual({
      tone: "warning",
      trial: 37,
      sentence: "The assessor stops trial 37 at step 12: below the median of 9 trials",
    });
  });

  test("what a trial left, and for whom it leaves, are told in sentences", () => {
    const said = (kind: string, payload: Values) =>
      journalWords({ line: 1, at: "", kind, queues: [], payload: { number: 5, ...payload } }, "loss");
    expect(said("trial_preempted", { for: "8f3k2/7", priority: 10, attempt: 1 }).sentence).toBe(
      "Trial 5 makes room for trial 8f3k2/7, which has priority 10",
    );
    const output = { asset: "ab", files: 2, size: 2048, is_complete: true, message: "" };
    expect(said("output_collected", output)).toMatchObject({
      tone: "plain",
      sentence: "What trial 5 left is kept (2 files, 2 KiB)",
    });
    expect(said("output_collected", { ...output, is_complete: false, message: "a pipe" })).toMatchObject({
      tone: "warning",
      sentence: "Not all of what trial 5 left is kept (2 files, 2 KiB): a pipe",
    });
    expect(said("output_collected", { ...output, asset: "", message: "the store is full" }).sentence).toBe(
      "Nothing of what trial 5 left could be kept: the store is full",
    );
  });

  test("a trial that an evaluator holds is on no node, and has no log here", () => {
    const held = { attempt: 1, agent: "", nodes: [], status: "running", exit: null, message: "" };
    const trial = { number: 3, attempt_details: [held], processes_per_node: 1 } as unknown as TrialDetail;
    const shown = JSON.stringify(Attempts({ trial, id: "x" }));
    expect(shown).toContain("An evaluator asked for it");
    expect(shown).not.toContain("stdout");
    expect(whereOf({ agent: "", nodes: [] })).toBe("held by an evaluator");
    expect(whereOf({ agent: "n1", nodes: [] })).toBe("on n1");
    expect(reasonWords("asked")).toBe("an evaluator has asked for it, and holds it");
  });

  test("a line of a kind that is not known is told by its name", () => {
    expect(
      journalWords({ line: 1, at: "", kind: "moon_rose", queues: [], payload: {} }, "loss").sentence,
    ).toBe("moon rose");
  });
});

describe("a set of parameters elsewhere", () => {
  const values = { lr: 0.1, name: "it's", layer: { _name: "conv", k: 3 }, on: true };

  test("no shell runs what stands in it", () => {
    expect(shell("$(rm -rf /)")).toBe("'$(rm -rf /)'");
    expect(write(values, "arguments")).toBe(
      `--lr=0.1 '--name=it'\\''s' --layer._name=conv --layer.k=3 --on=true`,
    );
  });

  test("as YAML and as Python", () => {
    expect(write(values, "yaml")).toContain('name: "it\'s"');
    expect(write(values, "python")).toBe(
      '{"lr": 0.1, "name": "it\'s", "layer": {"_name": "conv", "k": 3}, "on": True}',
    );
  });
});

test("an experiment that a person paused says what happens to its trials", () => {
  const paused = {
    status: "paused",
    reason: "requested",
    message: "running trials go on, no new ones start",
  };
  expect(whyExperiment(paused as never)).toBe("running trials go on, no new ones start");
  expect(whyExperiment({ status: "stopped", reason: "requested", message: "" } as never)).toMatch(
    /stopped it/,
  );
  expect(whyExperiment({ status: "running", reason: "requested", message: "" } as never)).toBe("");
});

describe("browsers, as people call them", () => {
  test.each([
    [
      "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36",
      "Chrome 156 on Linux",
    ],
    [
      "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/150.0.0.0 Safari/537.36 Edg/150.0",
      "Edge 150 on Windows",
    ],
    [
      "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15) AppleWebKit/605 Version/19.1 Safari/605",
      "Safari 19 on macOS",
    ],
    ["Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0", "Firefox 140 on Linux"],
    ["curl/8.5", "curl/8.5"],
    [null, "a program"],
  ])("%s", (header, words) => {
    expect(browserName(header)).toBe(words);
  });
});

test("a stopped process says by whom in words, and not by the name of the reason", () => {
  const exit = { cause: "stopped", code: 0, signal: null, stop_reason: "stopped_by_assessor", tail: null };
  expect(exitWords(exit as never)).toBe(
    "stopped as it was told: the assessor stopped it: it did worse than others had at that step",
  );
  expect(exitWords({ ...exit, stop_reason: "stopped" } as never)).toBe("stopped as it was told");
});

test("whoever asked for a move is named once", () => {
  const payload = { to: "running", reason: "requested", message: "", by: "ann" };
  const line = { line: 1, at: "2026-11-24T10:00:00Z", kind: "experiment_moved", payload };
  expect(journalWords(line as never, "loss").sentence).toBe("The experiment is running (asked for by ann)");
});
