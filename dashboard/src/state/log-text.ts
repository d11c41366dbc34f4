// The text of a log as it is read: pieces with their places in the file, and what a terminal would show of them.
import { bytes } from "./format";

/** `begin` and `end` are bytes of the file. */
export interface Piece {
  begin: number;
  end: number;
  text: string;
}

export type LogText = readonly Piece[];

const CUT = 3; // bytes of a character that a range began or ended in: they are no gap
const MERGED = 65_536; // characters of a piece that grows while a trial runs

/**
 * An answer to the range from `asked`, of as many bytes as were left or wanted; a negative one counts from the end.
 * The file keeps no more than its last two parts, so the answer may begin later.
 */
export function pieceOf(asked: number, text: string, end: number, size: number): Piece {
  const wanted = asked < 0 ? Math.max(0, size + asked) : asked;
  // What is no text takes more bytes here than in the file: a beginning that is later than wanted is later indeed.
  return { begin: Math.min(end, Math.max(wanted, end - bytesOf(text).length)), end, text };
}

/** With what comes after it. Of more than `most` characters the first pieces are left out. */
export function appended(log: LogText, piece: Piece, most: number): LogText {
  if (piece.text === "") return log;
  const last = log[log.length - 1];
  const grows = last && last.end === piece.begin && last.text.length + piece.text.length <= MERGED;
  const all = grows
    ? [...log.slice(0, -1), { begin: last.begin, end: piece.end, text: last.text + piece.text }]
    : [...log, piece];
  let length = all.reduce((sum, one) => sum + one.text.length, 0);
  let first = 0;
  for (; first < all.length - 1 && length > most; first++) length -= all[first].text.length;
  return all.slice(first);
}

/** With what comes before it, as far as that is not there already. */
export function prefixed(log: LogText, piece: Piece): LogText {
  const begin = log[0]?.begin ?? piece.end;
  if (piece.end <= begin) return [piece, ...log];
  const text = new TextDecoder().decode(bytesOf(piece.text).slice(0, Math.max(0, begin - piece.begin)));
  return [{ begin: piece.begin, end: begin, text }, ...log];
}

/** All of it, with a line where something is not there. */
export function textOf(log: LogText): string {
  return log
    .map(({ begin, text }, place) => {
      const gap = place === 0 ? 0 : begin - log[place - 1].end;
      return gap > CUT ? `\n… ${bytes(gap)} that are not kept any more …\n${text}` : text;
    })
    .join("");
}

const ESCAPE = String.fromCharCode(27);
const BELL = String.fromCharCode(7);
const BACK = String.fromCharCode(8);
const COMMANDS = new RegExp(
  [
    `${ESCAPE}\\[[0-?]*[ -/]*[@-~]`, // colours, and where the cursor goes
    `${ESCAPE}\\][^${BELL}${ESCAPE}]*(?:${BELL}|${ESCAPE}\\\\)`, // titles and links
    `${ESCAPE}[@-Z\\\\-_]`,
    BACK,
  ].join("|"),
  "g",
);

/** What a terminal would show in the end: of a line that is written again and again the last state, and no commands. */
export function shownText(text: string): string {
  const plain = text.includes(ESCAPE) || text.includes(BACK) ? text.replace(COMMANDS, "") : text;
  return plain.includes("\r") ? plain.split("\n").map(lastState).join("\n") : plain;
}

function lastState(line: string): string {
  let end = line.length;
  while (end > 0 && line[end - 1] === "\r") end--;
  return line.slice(line.lastIndexOf("\r", end - 1) + 1, end);
}

function bytesOf(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}
