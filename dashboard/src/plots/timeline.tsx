// Which trial held which place when; what is empty is time in which nothing ran there.
import { useMemo } from "preact/hooks";
import { amend, go, query, trialPath } from "../state/address";
import { ago, clock, count, duration } from "../state/format";
import { statusWords } from "../state/words";
import { clipText } from "./axes";
import { statusColour } from "./colours";
import { csv, Figure, FONT, type Painting, type Pointer, type Size } from "./figure";
import { timeTick, zoomOf } from "./history";
import { makeScale, type Scale } from "./scales";

export interface Span {
  lane: string;
  number: number;
  attempt: number;
  from: number;
  to: number | null;
  status: string;
}

const ROW = 24;
const LEFT = 110;
const MOST_LANES = 200;

/** The places that are drawn, and how many there are besides. */
export function lanesOf(spans: readonly Pick<Span, "lane">[]): { lanes: string[]; more: number } {
  const all = [...new Set(spans.map((span) => span.lane))];
  return { lanes: all.slice(0, MOST_LANES), more: Math.max(0, all.length - MOST_LANES) };
}

export function TimelinePlot({ id, spans, now }: { id: string; spans: readonly Span[]; now: number }) {
  const zoomText = query.value.get("t");
  const { lanes, more } = useMemo(() => lanesOf(spans), [spans]);
  const painting = useMemo(
    () => makePainting(spans, lanes, now, zoomOf(zoomText)),
    [spans, lanes, zoomText, Math.floor(now / 2_000)],
  );
  if (spans.length === 0) return null;
  return (
    <Figure
      name="timeline"
      title="What ran when"
      height={lanes.length * ROW + 44}
      painting={painting}
      cursor="crosshair"
      summary={`${count(spans.length, "attempt")} on ${count(lanes.length, "place")}; drag to zoom, the gaps are time in which a place was empty.`}
      csv={() =>
        csv([
          ["place", "number", "attempt", "from", "to", "status"],
          ...spans.map((s) => [
            s.lane,
            s.number,
            s.attempt,
            clock(s.from),
            s.to === null ? "" : clock(s.to),
            s.status,
          ]),
        ])
      }
      controls={
        zoomText && (
          <button type="button" class="quiet" onClick={() => amend({ t: null })}>
            show all
          </button>
        )
      }
      onDrag={(from, to, size, done) => {
        if (!done) return;
        const { x } = painting.scales(size);
        const ends = [x.invert(from.x), x.invert(to.x)].sort((one, other) => one - other);
        amend({ t: `${Math.round(ends[0])}..${Math.round(ends[1])}` });
      }}
      onDoubleClick={() => amend({ t: null })}
      onClick={(pointer, size) => {
        const span = painting.hit(pointer, size);
        if (span) go(trialPath(id, span.number));
      }}
      tip={(pointer, size) => {
        const span = painting.hit(pointer, size);
        return (
          span && (
            <>
              <strong>trial {span.number}</strong>
              {span.attempt > 1 && `, attempt ${span.attempt}`}{" "}
              <span class={`status-text ${span.status}`}>{statusWords(span.status)}</span>
              <div>{clock(span.from)}</div>
              <div class="muted">
                {span.to === null
                  ? `for ${duration((now - span.from) / 1_000)} so far`
                  : `for ${duration((span.to - span.from) / 1_000)}, ended ${ago(span.to, now)}`}
              </div>
            </>
          )
        );
      }}
    >
      {more > 0 && <p class="note">Not drawn: {count(more, "further place")}; the data have all.</p>}
    </Figure>
  );
}

type TimelinePainting = Painting & {
  scales(size: Size): { x: Scale };
  hit(at: Pointer, size: Size): Span | null;
};

function makePainting(
  spans: readonly Span[],
  lanes: readonly string[],
  now: number,
  zoom: { low: number; high: number } | null,
): TimelinePainting {
  const rows = new Map(lanes.map((lane, row) => [lane, row]));
  const low = spans.reduce((least, span) => Math.min(least, span.from), Number.POSITIVE_INFINITY);
  const high = spans.reduce((most, span) => Math.max(most, span.to ?? now), 0);
  const domain = zoom ?? { low, high: Math.max(high, low + 1_000) };
  const scales = ({ width }: Size) => ({
    x: { ...makeScale(domain, LEFT, width - 12), ticks: timeTicks(domain, (width - LEFT) / 100) },
  });
  return {
    scales: (size) => ({ x: makeScale(domain, LEFT, size.width - 12) }),
    hit(at, size) {
      const { x } = scales(size);
      const row = Math.floor((at.y - 8) / ROW);
      return (
        spans.find(
          (span) =>
            rows.get(span.lane) === row && x.at(span.from) - 2 <= at.x && x.at(span.to ?? now) + 2 >= at.x,
        ) ?? null
      );
    },
    paint(pen, size, colours) {
      const { x } = scales(size);
      const bottom = lanes.length * ROW + 8;
      pen.font = `11px ${FONT}`;
      pen.textBaseline = "middle";
      lanes.forEach((lane, row) => {
        pen.fillStyle = colours.muted;
        pen.textAlign = "right";
        pen.fillText(clipText(lane, 16), LEFT - 8, 8 + row * ROW + ROW / 2);
        pen.globalAlpha = 0.6;
        pen.fillStyle = colours.grid;
        pen.fillRect(LEFT, 8 + row * ROW + 3, size.width - LEFT - 12, ROW - 6);
        pen.globalAlpha = 1;
      });
      pen.textAlign = "center";
      pen.strokeStyle = colours.line;
      pen.lineWidth = 1;
      for (const tick of x.ticks) {
        const at = Math.round(x.at(tick)) + 0.5;
        pen.beginPath();
        pen.moveTo(at, bottom);
        pen.lineTo(at, bottom + 4);
        pen.stroke();
        pen.fillStyle = colours.muted;
        pen.fillText(timeTick(tick, domain), at, bottom + 14);
      }
      for (const span of spans) {
        const row = rows.get(span.lane);
        if (row === undefined) continue;
        const [from, to] = [Math.max(LEFT, x.at(span.from)), Math.min(size.width - 12, x.at(span.to ?? now))];
        if (to < LEFT || from > size.width - 12) continue;
        pen.fillStyle = statusColour(span.status, colours);
        pen.globalAlpha = 0.9;
        pen.fillRect(from, 8 + row * ROW + 3, Math.max(1.5, to - from - 1), ROW - 6);
        pen.globalAlpha = 1;
        const words = String(span.number);
        if (to - from > words.length * 7 + 6) {
          pen.fillStyle = colours.surface;
          pen.font = `600 11px ${FONT}`;
          pen.fillText(words, (from + to) / 2, 8 + row * ROW + ROW / 2);
        }
      }
    },
  };
}

const STEPS_S = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
  2592000,
];

function timeTicks({ low, high }: { low: number; high: number }, room: number): number[] {
  const step =
    1_000 * (STEPS_S.find((seconds) => (high - low) / (seconds * 1_000) <= Math.max(2, room)) ?? 7_776_000);
  const found: number[] = [];
  for (let at = Math.ceil(low / step) * step; at <= high && found.length < 100; at += step) found.push(at);
  return found;
}
