import { describe, expect, test } from "vitest";
import { serviceTime } from "../src/pages/experiment-timeline";
import { clipMiddle, clipText } from "../src/plots/axes";
import { csv } from "../src/plots/figure";
import { historyData, zoomOf } from "../src/plots/history";
import { type Axis, binned, endless, withAbsent } from "../src/plots/parallel";
import { bestSoFar, nearest, unseenOf, unseenWords, usefulExtent } from "../src/plots/points";
import { usedOverTime } from "../src/plots/resources";
import { categoryScale, extent, linearTicks, logTicks, makeScale, padded } from "../src/plots/scales";
import { sparkPath } from "../src/plots/sparkline";
import { SvgPen } from "../src/plots/svg";
import { lanesOf } from "../src/plots/timeline";
import { Trials } from "../src/state/columns";

describe("scales", () => {
  test("a value and its place are each other's", () => {
    for (const log of [false, true]) {
      const scale = makeScale({ low: 0.001, high: 100 }, 50, 450, log);
      for (const value of [0.001, 0.3, 7, 100]) expect(scale.invert(scale.at(value))).toBeCloseTo(value, 8);
    }
    expect(makeScale({ low: -1, high: 1 }, 0, 10, true).kind).toBe("linear"); // no logarithm of what is not positive
  });

  test("ticks are round, inside, and few", () => {
    expect(linearTicks({ low: 0, high: 1 }, 5)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
    expect(linearTicks({ low: 3, high: 3 }, 5)).toEqual([3]);
    expect(linearTicks({ low: Number.NEGATIVE_INFINITY, high: 1 }, 5)).toHaveLength(1);
    expect(logTicks({ low: 0.001, high: 10 }, 10)).toEqual([0.001, 0.01, 0.1, 1, 10]);
    expect(logTicks({ low: 2, high: 6 }, 5)).toEqual([2, 5]);
  });

  test("only finite values make an extent; a single one gets room around it", () => {
    expect(extent([Number.NaN, 1, Number.POSITIVE_INFINITY, -2])).toEqual({ low: -2, high: 1 });
    expect(extent([Number.NaN])).toBeNull();
    expect(extent([-1, 0, 3], true)).toEqual({ low: 3, high: 3 });
    const { low, high } = padded({ low: 5, high: 5 });
    expect(low).toBeLessThan(5);
    expect(high).toBeGreaterThan(5);
  });

  test("values that are further apart than a float holds are drawn, in their order", () => {
    for (const log of [false, true]) {
      const values = log ? [5e-324, 1e-308, 1, 1e308, 1.7e308] : [-1.7e308, -1e-308, 1, 1e308, 1.7e308];
      const found = extent(values, log);
      const scale = makeScale(padded(found ?? { low: 0, high: 0 }, log), 400, 0, log);
      const places = values.map(scale.at);
      for (const place of places) expect(place >= 0 && place <= 400, `${places}`).toBe(true);
      expect(places).toEqual([...places].sort((one, other) => other - one));
      expect(scale.invert(places[3]) / 1e308).toBeCloseTo(1, 3);
      const ticks = scale.ticks(5);
      expect(ticks.length).toBeGreaterThan(1);
      for (const tick of ticks) expect(scale.at(tick)).toBeTypeOf("number");
      expect(ticks.every(Number.isFinite)).toBe(true);
    }
    expect(sparkPath([-1.7e308, 0, 1.7e308], 96, 24)).not.toMatch(/NaN|Infinity/);
    expect(linearTicks({ low: -1.7e308, high: 1.7e308 }, 5)).toContain(0);
  });

  test("what lies far outside of a plot has a place there all the same; what is no number has none", () => {
    const scale = makeScale({ low: 0, high: 1 }, 400, 0);
    expect([scale.at(1e308), scale.at(-1e308)].map(Math.sign)).toEqual([-1, 1]);
    for (const value of [1e308, -1e308]) expect(Number.isFinite(scale.at(value))).toBe(true);
    expect(scale.at(Number.POSITIVE_INFINITY)).toBeNaN();
    expect(makeScale({ low: 1, high: 2 }, 400, 0, true).at(0)).toBeNaN();
  });

  test("texts lie in the middle of their part", () => {
    const scale = categoryScale(["a", "b"], 0, 100);
    expect([scale.at(0), scale.at(1)]).toEqual([25, 75]);
    expect(scale.write(1)).toBe("b");
  });
});

test("a name that is cut has no half of a sign at its end", () => {
  expect(clipText("ab😀cd", 4)).toBe("ab…");
  expect(clipText("ab😀cd", 5)).toBe("ab😀…");
  expect(clipMiddle("abcd😀ef😀", 6)).toBe("abcd…");
  expect(clipMiddle("😀bcdefgh😀", 7)).toBe("😀bcd…");
  for (let most = 4; most < 20; most++)
    for (const cut of [clipText, clipMiddle])
      expect(() => encodeURIComponent(cut("😀".repeat(12), most))).not.toThrow();
});

describe("points", () => {
  test("the best so far goes one way only, and NaN is no best", () => {
    const values = [3, Number.NaN, 2, 5, 1].map((y, x) => ({ x, y }));
    expect(bestSoFar(values, false)).toEqual([
      { x: 0, y: 3 },
      { x: 2, y: 2 },
      { x: 4, y: 1 },
    ]);
    expect(bestSoFar(values, true)).toEqual([
      { x: 0, y: 3 },
      { x: 3, y: 5 },
    ]);
  });

  test("the nearest one is found, none where all are far", () => {
    const scale = makeScale({ low: 0, high: 10 }, 0, 100);
    const points = [
      { row: 0, x: 1, y: 1, status: "succeeded", faint: false },
      { row: 1, x: 9, y: 9, status: "succeeded", faint: false },
    ];
    expect(nearest(points, scale, scale, { x: 88, y: 91 })?.row).toBe(1);
    expect(nearest(points, scale, scale, { x: 50, y: 50 })).toBeNull();
  });

  test("a few values far outside leave the others their room", () => {
    const found = usefulExtent([...Array(100).keys(), 1e9]);
    expect(found?.low).toBe(0);
    expect(found?.high).toBeLessThan(1_000);
  });

  test("failed trials lie at the worse edge, the bins of lines go from worst to best", () => {
    const trials = new Trials();
    trials.apply({ number: [1, 2, 3], status: ["succeeded", "failed", "succeeded"], value: [2, null, 1] });
    const data = historyData(trials, null, false, false, false);
    expect(data?.points.find((point) => point.status === "failed")?.y).toBe(data?.y.high);
    expect(data?.steps.map((step) => step.y)).toEqual([2, 1]);
    const lines = binned(trials, false);
    const axis = (name: string, data: number[], labels: string[] | null): Axis => ({
      name,
      filter: name,
      data: Float64Array.from([...data, ...Array(trials.length).fill(data[0])].slice(0, trials.length)),
      labels,
      log: false,
    });
    const [whole, holed, unnamed] = [
      axis("whole", [1, 2], null),
      axis("holed", [Number.NaN], null),
      axis("unnamed", [-1], ["a"]),
    ];
    expect(withAbsent(lines, [whole, holed, unnamed])).toEqual(new Set([holed, unnamed]));
    expect([...lines.rows]).toEqual([0, 2]);
    expect([...lines.bins]).toEqual([0, 63]);
  });

  test("trials whose value cannot be drawn are counted and told, also where no other is there", () => {
    const value = ["NaN", "Infinity", -1, 0.5, null, ...Array(30).fill(0.5), 1e12];
    const number = value.map((_, place) => place + 1);
    const trials = new Trials();
    trials.apply({ number, status: value.map((one) => (one === null ? "running" : "succeeded")), value });
    const said = (log: boolean, passes: Uint8Array | null = null) => {
      const data = historyData(trials, passes, false, false, log);
      return data && unseenWords(data.unseen);
    };
    expect(said(false)).toBe(
      "Not drawn: 2 trials with NaN or an infinite value, 1 trial far outside of the others.",
    );
    expect(said(true)).toContain("1 trial whose value has no logarithm");
    expect(said(false, new Uint8Array(value.length)), "the filter leaves them out").toBe("");
    expect(endless(trials)).toBe(2);
    const alone = new Trials();
    alone.apply({ number: [1], status: ["succeeded"], value: ["NaN"] });
    expect(unseenWords(historyData(alone, null, false, false, false)?.unseen as never)).toBe(
      "Not drawn: 1 trial with NaN or an infinite value.",
    );
    const none = new Trials();
    none.apply({ number: [1], status: ["running"], value: [null] });
    expect(said(false)).not.toBe("");
    expect(historyData(none, null, false, true, false), "it has not started").toBeNull();
  });

  test("reports that a curve leaves out are told, as trials are", () => {
    const unseen = unseenOf([1, Number.NaN, 0, -1, 5, Number.POSITIVE_INFINITY], true, { low: 0.5, high: 2 });
    expect(unseen).toEqual({ endless: 2, negative: 2, outside: 1 });
    expect(unseenWords(unseen, "report")).toBe(
      "Not drawn: 2 reports with NaN or an infinite value, 2 reports whose value has no logarithm, 1 report far outside of the others.",
    );
    expect(unseenWords(unseenOf([1, 2], false, { low: 1, high: 2 }))).toBe("");
  });

  test("a zoom of the address that makes no sense is none", () => {
    expect(zoomOf("1..5")).toEqual({ low: 1, high: 5 });
    for (const text of [null, "", "5..1", "a..b", "1"]) expect(zoomOf(text)).toBeNull();
  });

  test("a sparkline needs two values", () => {
    expect(sparkPath([1], 96, 24)).toBe("");
    expect(sparkPath([2, Number.NaN, 1], 96, 24)).toMatch(/^M1\.0 /);
  });
});

describe("what is taken away", () => {
  test("text in a drawing is text", () => {
    const pen = new SvgPen(10, 10, "<script>");
    pen.fillText('<img src=x onerror="alert(1)"> &\u0000', 1, 2);
    const drawn = pen.toString();
    expect(drawn).not.toContain("<img");
    expect(drawn).not.toContain("<script");
    expect(drawn).toContain("&lt;img src=x onerror=&quot;alert(1)&quot;&gt; &amp;\uFFFD");
  });

  test("what is nowhere is left out, as on a canvas", () => {
    const pen = new SvgPen(10, 10, "x");
    pen.beginPath();
    pen.moveTo(1, 1);
    pen.lineTo(2, Number.NaN);
    pen.arc(2, Number.NaN, 1, 0, 7);
    pen.lineTo(3, 3);
    pen.stroke();
    pen.fillRect(Number.NEGATIVE_INFINITY, 0, 1, 1);
    expect(pen.toString()).toContain('d="M1 1L3 3"');
    expect(pen.toString()).not.toMatch(/NaN|Infinity/);
  });

  test("clips and transforms end with what was saved", () => {
    const pen = new SvgPen(10, 10, "x");
    pen.save();
    pen.beginPath();
    pen.rect(0, 0, 5, 5);
    pen.clip();
    pen.translate(1, 2);
    pen.fillRect(0, 0, 1, 1);
    pen.restore();
    pen.fillRect(0, 0, 1, 1);
    const drawn = pen.toString();
    expect(drawn.split("<g").length).toBe(drawn.split("</g>").length);
    expect(drawn.endsWith('fill="#000"/></svg>\n')).toBe(true);
  });

  test("no spreadsheet runs a cell", () => {
    expect(csv([["=1+1", 'say "x"', -3, null, "a,b"]])).toBe('\'=1+1,"say ""x""",-3,,"a,b"\r\n');
  });
});

test("places that are not drawn are counted", () => {
  const spans = [...Array(450).keys()].map((place) => ({ lane: `core ${place % 225}` }));
  expect(lanesOf(spans).lanes).toHaveLength(200);
  expect(lanesOf(spans).more).toBe(25);
  expect(lanesOf(spans.slice(0, 200)).more).toBe(0);
});

test("a bar that goes on ends at the time of the service, whatever the clock of the browser says", () => {
  const loaded = 1_000_000;
  expect(serviceTime(12.5, loaded, loaded)).toBe(12_500);
  expect(serviceTime(12.5, loaded, loaded + 4_900)).toBe(16_500);
  expect(serviceTime(12.5, loaded, loaded - 60_000)).toBe(12_500);
});

describe("resources over time", () => {
  const sample = (at_s: number, memory_bytes: number, cores: number) => ({
    at_s,
    memory_bytes,
    cores,
    processor_s: at_s,
    processes: 1,
  });

  test("memory and time are in units of which there are some, from zero", () => {
    const minutes = usedOverTime([sample(60, 50 * 2 ** 20, 0.5), sample(600, 150 * 2 ** 20, 2)], "memory");
    expect(minutes.points.map(({ x, y }) => [x, y])).toEqual([
      [1, 50],
      [10, 150],
    ]);
    expect([minutes.x.name, minutes.y.name]).toEqual(["since its start, min", "memory, MiB"]);
    expect([minutes.x.low, minutes.y.low, minutes.x.high]).toEqual([0, 0, 10]);
    expect(usedOverTime([sample(90, 1, 0.5)], "cores").x.name).toBe("since its start, s");
    expect(usedOverTime([sample(86_400, 1, 0.5)], "cores").x.high).toBe(24);
  });

  test("one sample of nothing has axes all the same", () => {
    const { x, y, most } = usedOverTime([sample(1, 0, 0)], "cores");
    expect([x.high, y.high, most]).toEqual([1, 1, 0]);
    expect(usedOverTime([], "memory").points).toEqual([]);
  });
});
