import { describe, expect, test } from "vitest";
import { appended, type LogText, pieceOf, prefixed, shownText, textOf } from "../src/state/log-text";

const ESCAPE = String.fromCharCode(27);

describe("what a terminal would show", () => {
  test.each([
    ["a progress bar", " 0%|  |\r 50%|█ |\r100%|██|\nTraceback\n", "100%|██|\nTraceback\n"],
    ["one that goes on", "epoch 1\n 0%\r 10%\r", "epoch 1\n 10%"],
    ["lines of Windows", "one\r\ntwo\r\n", "one\ntwo\n"],
    ["colours", `${ESCAPE}[32mgood${ESCAPE}[0m and ${ESCAPE}[1;31mbad${ESCAPE}[m`, "good and bad"],
    ["bars below one another", `a\r${ESCAPE}[Ab\n${ESCAPE}[2Kc`, "b\nc"],
    ["a title", `${ESCAPE}]0;training\u0007begins`, "begins"],
    ["what is no command", "[32m a tab\t and an é", "[32m a tab\t and an é"],
    ["nothing", "", ""],
  ])("%s", (_, printed, shown) => {
    expect(shownText(printed)).toBe(shown);
  });

  test("a long line without an end takes no time to speak of", () => {
    const long = "x".repeat(1_000_000);
    expect(shownText(`${long}\r${long}`)).toHaveLength(1_000_000);
  });
});

describe("the pieces of a log", () => {
  const file = "0123456789abcdefghij";
  const at = (begin: number, end: number) => pieceOf(begin, file.slice(begin, end), end, file.length);

  test("what was cut off in front is what is asked for next", () => {
    let log: LogText = [at(0, 4)];
    log = appended(log, at(8, 12), 1_000);
    log = appended(
      [at(0, 4), at(4, 8), at(8, 12)],
      { ...at(12, 16), text: file.slice(12, 16).repeat(20_000) },
      80_005,
    );
    expect(log[0].begin).toBe(8);
    log = prefixed(log, at(4, 8));
    expect(log[0].begin).toBe(4);
    expect(textOf(log).startsWith("456789abcdef")).toBe(true);
  });

  test("one after the other they are the text, also where one grows", () => {
    let log: LogText = [];
    for (let place = 0; place < file.length; place++) log = appended(log, at(place, place + 1), 1_000);
    expect(log).toEqual([{ begin: 0, end: 20, text: file }]);
    expect(appended(log, pieceOf(20, "", 20, 20), 1_000)).toBe(log);
  });

  test("the end of a file is where it is, also where its first bytes are no text", () => {
    expect(pieceOf(-4, "\ufffdbcd", 20, 20)).toMatchObject({ begin: 16, end: 20 });
    expect(pieceOf(-100, file, 20, 20).begin).toBe(0);
  });

  test("a character that a range began in is no gap", () => {
    const log = prefixed([{ begin: 12, end: 20, text: "\ufffdrest" }], pieceOf(0, "0123456789", 10, 20));
    expect(textOf(log)).toBe("0123456789\ufffdrest");
  });

  test("a part that the node has thrown away is told, and nothing is there twice", () => {
    // The oldest byte that is kept is 6: the answer to 0 begins there, and has as many bytes as were wanted.
    const log = prefixed([at(10, 20)], pieceOf(0, file.slice(6, 16), 16, 20));
    expect(textOf(log)).toBe(file.slice(6));
    expect(log[0].begin).toBe(6);
    expect(textOf(appended([at(0, 4)], pieceOf(4, file.slice(10), 20, 20), 1_000))).toBe(
      "0123\n… 6 B that are not kept any more …\nabcdefghij",
    );
  });
});
