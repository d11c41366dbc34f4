// The log of an attempt: the end of it, followed while the trial runs; earlier parts when one asks for them.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { ask, trialUrl } from "../api/client";
import { asProblem, mayPass } from "../api/resource";
import { saveBlob } from "../plots/figure";
import { bytes } from "../state/format";
import { appended, type LogText, type Piece, pieceOf, prefixed, shownText, textOf } from "../state/log-text";
import { Switch } from "./controls";
import { say, settled } from "./notices";

const CHUNK = 65_536;
const MOST_CHARACTERS = 2_000_000; // kept by the page; what is before that can be downloaded
const FOLLOW_MS = 700;

interface Props {
  id: string;
  number: number;
  attempt: number;
  /** Of a trial of several nodes, from 0. */
  node?: number;
  /** Of one of several processes; else what all of the node wrote. */
  rank?: number;
  stream: "stdout" | "stderr";
  runs: boolean;
}

export function Log({ id, number, attempt, node = 0, rank, stream, runs }: Props) {
  const log = useSignal<LogText>([]);
  const oldest = useSignal(0); // before it nothing is kept
  const size = useSignal(0);
  const follow = useSignal(true);
  const wanted = useSignal("");
  const trouble = useSignal("");
  const box = useRef<HTMLPreElement>(null);
  const end = useRef(0);
  const most = useRef(MOST_CHARACTERS);
  const shown = useRef("");
  const path = (offset: number, limit = CHUNK) =>
    trialUrl(
      id,
      number,
      `/logs?stream=${stream}&attempt=${attempt}${node ? `&node=${node}` : ""}${ofRank("&rank=", rank)}&offset=${offset}&limit=${limit}`,
    );
  const readFrom = async (offset: number, limit = CHUNK): Promise<Piece> => {
    const { body, headers } = await ask<string>("GET", path(offset, limit));
    size.value = Number(headers.get("log-size") ?? 0);
    return pieceOf(offset, body, Number(headers.get("log-end") ?? 0), size.value);
  };

  useEffect(() => {
    let stopped = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    if (shown.current !== path(0)) {
      // Another log; that a trial has ended makes no other one of it.
      shown.current = path(0);
      log.value = [];
      oldest.value = 0;
      end.current = -CHUNK;
      most.current = MOST_CHARACTERS;
    }
    const look = async () => {
      try {
        const piece = await readFrom(end.current);
        if (stopped) return;
        end.current = piece.end;
        log.value = appended(log.value, piece, most.current);
        trouble.value = "";
        if (end.current < size.value) timer = setTimeout(look, 0);
        else if (runs) timer = setTimeout(look, FOLLOW_MS);
      } catch (error) {
        if (stopped) return;
        const problem = asProblem(error);
        trouble.value = problem.detail;
        if (runs || mayPass(problem)) timer = setTimeout(look, 3_000);
      }
    };
    void look();
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, [id, number, attempt, node, rank, stream, runs]);

  useEffect(() => {
    if (follow.value && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [log.value, follow.value]);

  const begin = log.value[0]?.begin ?? 0;
  const earlier = async () => {
    const from = Math.max(0, begin - CHUNK);
    try {
      const piece = await readFrom(from, begin - from);
      if (log.value[0]?.begin !== begin || shown.current !== path(0)) return; // it is another text by now
      follow.value = false;
      most.current += piece.text.length;
      oldest.value = piece.begin > from ? piece.begin : 0;
      log.value = prefixed(log.value, piece);
    } catch (error) {
      trouble.value = asProblem(error).detail;
    }
  };
  const text = useMemo(() => shownText(textOf(log.value)), [log.value]);
  const lines = useMemo(() => {
    const asked = wanted.value.toLowerCase();
    return asked ? text.split("\n").filter((line) => line.toLowerCase().includes(asked)) : null;
  }, [text, wanted.value]);

  return (
    <section class="log" aria-label={`${stream} of attempt ${attempt}`}>
      <div class="log-head">
        <input
          type="search"
          placeholder="find in the log"
          aria-label="find in the log"
          value={wanted.value}
          onInput={(event) => {
            wanted.value = event.currentTarget.value;
          }}
        />
        {runs && (
          <Switch
            label="follow"
            on={follow.value}
            onChange={(on) => {
              follow.value = on;
            }}
          />
        )}
        <span class="muted">
          {bytes(size.value)}
          {lines && `, ${lines.length} lines found`}
        </span>
        <button
          type="button"
          onClick={() =>
            void whole(
              path,
              `${id}-${number}-${attempt}${node ? `-node${node}` : ""}${ofRank("-rank", rank)}-${stream}.log`,
            )
          }
        >
          Download
        </button>
      </div>
      {begin > oldest.value && (
        <button type="button" class="quiet" onClick={() => void earlier()}>
          show what was before
        </button>
      )}
      {trouble.value && (
        <p class="note" role="alert">
          {trouble.value}
        </p>
      )}
      <pre
        ref={box}
        tabIndex={0}
        role="log"
        aria-live="off"
        aria-label={`${stream} of attempt ${attempt}`}
        onScroll={(event) => {
          const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
          if (scrollHeight - scrollTop - clientHeight > 60) follow.value = false;
        }}
      >
        {lines ? lines.join("\n") : text || (trouble.value ? "" : "nothing was printed")}
      </pre>
    </section>
  );
}

function ofRank(before: string, rank: number | undefined): string {
  return rank === undefined ? "" : `${before}${rank}`;
}

/** All of it, range by range. */
async function whole(path: (offset: number, limit?: number) => string, name: string): Promise<void> {
  const parts: string[] = [];
  try {
    for (let offset = 0; ; ) {
      const answer = await ask<string>("GET", path(offset));
      parts.push(answer.body);
      const end = Number(answer.headers.get("log-end") ?? 0);
      if (end <= offset || end >= Number(answer.headers.get("log-size") ?? 0)) break;
      offset = end;
    }
    saveBlob(name, new Blob(parts, { type: "text/plain;charset=utf-8" }));
    settled(name);
  } catch (error) {
    say(asProblem(error).detail, "bad", name);
  }
}
