// How much each parameter matters, as bars; a click opens its slice.
import { useMemo } from "preact/hooks";
import type { Importance } from "../api/shapes";
import { percent } from "../state/format";
import { columnOfPath, labelOfPath } from "../state/space";
import { clipMiddle, clipText } from "./axes";
import { csv, Figure, FONT, type Painting, type Pointer, type Size } from "./figure";

const ROW = 26;
const MOST_ROWS = 12;
const LETTER = 7.2; // pixels, about
type Row = [label: string, share: number, column: string];

export function ImportancePlot({
  importance,
  onChoose,
  chosen,
}: {
  importance: Importance;
  onChoose(name: string): void;
  chosen: string | null;
}) {
  const all = useMemo(
    () =>
      Object.entries(importance.importance).map(
        ([path, share]): Row => [labelOfPath(path), share, columnOfPath(path)],
      ),
    [importance],
  );
  const rows = all.slice(0, MOST_ROWS);
  const painting = useMemo(() => makePainting(rows, chosen), [rows, chosen]);
  if (rows.length === 0) return null;
  const rowAt = (pointer: Pointer) => rows[Math.floor((pointer.y - 4) / ROW)]?.[2];
  return (
    <Figure
      name="importance"
      title={`What matters for ${importance.metric}`}
      height={rows.length * ROW + 12}
      painting={painting}
      cursor="pointer"
      summary={rows.map(([name, share]) => `${name} ${percent(share)}`).join(", ")}
      csv={() => csv([["parameter", "importance"], ...all.map(([name, share]) => [name, share])])}
      onClick={(pointer) => {
        const name = rowAt(pointer);
        if (name) onChoose(name);
      }}
      tip={(pointer) => {
        const row = rows[Math.floor((pointer.y - 4) / ROW)];
        return (
          row && (
            <>
              <strong>{clipText(row[0], 80)}</strong>
              <div>{percent(row[1])} of what the parameters explain</div>
              <div class="muted">click for its slice</div>
            </>
          )
        );
      }}
    >
      <ul class="unseen">
        {rows.map(([name, , column]) => (
          <li key={name}>
            <button type="button" onClick={() => onChoose(column)}>
              slice of {name}
            </button>
          </li>
        ))}
      </ul>
      {all.length > MOST_ROWS && (
        <p class="note">
          the {MOST_ROWS} first of {all.length}
        </p>
      )}
    </Figure>
  );
}

function makePainting(rows: Row[], chosen: string | null): Painting {
  const most = Math.max(...rows.map(([, share]) => share), 1e-9);
  const longest = Math.max(...rows.map(([name]) => name.length), 0);
  const room = ({ width }: Size) => Math.max(80, Math.min(longest * LETTER + 14, width * 0.45));
  return {
    paint(pen, size, colours) {
      const left = room(size);
      const right = size.width - 56;
      pen.textBaseline = "middle";
      rows.forEach(([name, share, column], index) => {
        const y = 6 + index * ROW;
        pen.font = `${column === chosen ? "600 " : ""}12px ${FONT}`;
        pen.textAlign = "right";
        pen.fillStyle = colours.text;
        pen.fillText(clipMiddle(name, Math.floor((left - 12) / LETTER)), left - 8, y + ROW / 2 - 2);
        pen.fillStyle = colours.grid;
        pen.fillRect(left, y + 3, right - left, ROW - 10);
        pen.fillStyle = colours.accent;
        pen.fillRect(left, y + 3, Math.max(2, ((right - left) * share) / most), ROW - 10);
        pen.font = `12px ${FONT}`;
        pen.textAlign = "left";
        pen.fillStyle = colours.muted;
        pen.fillText(percent(share), right + 6, y + ROW / 2 - 2);
      });
    },
  };
}
