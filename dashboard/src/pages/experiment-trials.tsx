// The table of trials: columns chosen, sorted, filtered; ten thousand rows as easily as ten.
import { useMemo } from "preact/hooks";
import { experimentUrl } from "../api/client";
import { objectives } from "../api/shapes";
import { Awaited } from "../parts/awaited";
import { Badge, Empty, To } from "../parts/controls";
import { Download } from "../parts/download";
import { FilterField } from "../parts/filter";
import { Menu } from "../parts/menu";
import { type TableColumn, VirtualTable } from "../parts/table";
import { amend, go, query, trialPath } from "../state/address";
import type { Column, Trials } from "../state/columns";
import { ago, clock, duration, number } from "../state/format";
import { now } from "../state/now";
import { reasonWords } from "../state/words";
import type { Parts } from "./experiment-overview";

const SHOWN_PARAMETERS = 8;

export function TrialsTab({ view, state, filtered, table }: Parts) {
  const { trials } = state;
  const [objective] = objectives(view);
  const chosen = query.value.get("cols");
  const sort = query.value.get("sort") ?? "-number";
  const down = sort.startsWith("-");
  const by = sort.replace(/^-/, "");
  const names = [...trials.parameters.keys()];
  const shown =
    chosen === null
      ? names.slice(0, SHOWN_PARAMETERS)
      : chosen.split("\n").filter((name) => trials.parameters.has(name));
  const columns = useMemo(
    () => makeColumns(view.id, trials, shown, objective?.metric ?? "value"),
    [trials, shown.join("\n"), filtered.revision],
  );
  const rows = useMemo(() => sorted(trials, filtered.rows, by, down), [trials, filtered, by, down]);
  if (filtered.revision === 0) return <Awaited of={table} what="The trials" />;
  if (trials.length === 0)
    return <Empty title="No trial yet">They appear here as the tuner proposes them.</Empty>;
  const pick = (name: string) => {
    const next = shown.includes(name)
      ? shown.filter((one) => one !== name)
      : names.filter((one) => one === name || shown.includes(one));
    amend({ cols: next.join("\n") || "\n" });
  };
  return (
    <>
      <FilterField filtered={filtered} total={trials.length} />
      <div class="bar">
        <Menu label="Columns" icon="▾" text="Columns">
          {names.map((name) => (
            <button
              key={name}
              type="button"
              role="menuitem"
              class="clip"
              title={name}
              onClick={(event) => {
                event.stopPropagation();
                pick(name);
              }}
            >
              <span aria-hidden="true">{shown.includes(name) ? "☑ " : "☐ "}</span>
              {name}
              <span class="unseen">{shown.includes(name) ? " shown" : " not shown"}</span>
            </button>
          ))}
        </Menu>
        {filtered.rows.length > 1 && filtered.rows.length <= 12 && filtered.passes && (
          <To
            class="button"
            to={`/compare?trials=${[...filtered.rows].map((row) => `${encodeURIComponent(view.id)}/${trials.number[row]}`).join(",")}`}
          >
            Compare these
          </To>
        )}
        <div class="grow" />
        <Menu label="Export everything" icon="↓" text="Export">
          {["csv", "json", "jsonl"].map((format) => (
            <Download
              key={format}
              role="menuitem"
              path={experimentUrl(view.id, `/export?format=${format}`)}
              name={`${view.id}.${format}`}
            >
              {format.toUpperCase()}
            </Download>
          ))}
          <Download
            role="menuitem"
            path={experimentUrl(view.id, "/export?format=csv&metrics=true")}
            name={`${view.id}-metrics.csv`}
          >
            CSV of every report
          </Download>
        </Menu>
      </div>
      {rows.length === 0 ? (
        <Empty title="No trial fits this filter">
          <button type="button" onClick={() => amend({ q: null })}>
            Show all
          </button>
        </Empty>
      ) : (
        <VirtualTable
          label="Trials"
          rows={rows}
          columns={columns}
          sort={{ name: by, down }}
          onSort={(name) => amend({ sort: by === name && down ? name : `-${name}` })}
          onOpen={(row) => go(trialPath(view.id, trials.number[row]))}
          rowKey={(row) => String(trials.number[row])}
          rowLabel={(row) => `trial ${trials.number[row]}`}
        />
      )}
    </>
  );
}

export function makeColumns(
  id: string,
  trials: Trials,
  shown: readonly string[],
  metric: string,
): TableColumn[] {
  const parameters = shown.flatMap((name) => {
    const column = trials.parameters.get(name);
    return column ? [parameterColumn(trials, column)] : [];
  });
  return [
    {
      name: "number",
      label: "Trial",
      numeric: true,
      width: 68,
      cell: (row) => (
        <To to={trialPath(id, trials.number[row])}>
          <strong>{trials.number[row]}</strong>
        </To>
      ),
    },
    {
      name: "status",
      label: "Status",
      width: 144,
      cell: (row) => <Badge status={trials.statusOf(row)} />,
      title: (row) => reasonWords(trials.text(trials.reason, row)),
    },
    {
      name: "value",
      label: metric,
      numeric: true,
      width: 136,
      cell: (row) => valueCell(trials, row),
      title: (row) => {
        const soFar = trials.soFar(row);
        if (soFar !== null) return `${soFar} so far, at step ${trials.step[row]}`;
        return trials.valued[row] ? String(trials.value[row]) : "";
      },
    },
    {
      name: "step",
      label: "Step",
      numeric: true,
      width: 64,
      cell: (row) => number(orNull(trials.step[row])),
    },
    ...parameters,
    {
      name: "duration",
      label: "Took",
      numeric: true,
      width: 92,
      cell: (row) => <Took trials={trials} row={row} />,
    },
    {
      name: "reported",
      label: "Last report",
      numeric: true,
      width: 108,
      cell: (row) => <Ago at={orNull(trials.reported[row])} />,
      title: (row) => clock(orNull(trials.reported[row])),
    },
    {
      name: "ended",
      label: "Ended",
      numeric: true,
      width: 108,
      cell: (row) => <Ago at={orNull(trials.ended[row])} />,
      title: (row) => clock(orNull(trials.ended[row])),
    },
    {
      name: "reason",
      label: "Why",
      width: 280,
      cell: (row) => <span class="muted">{reasonWords(trials.text(trials.reason, row))}</span>,
      title: (row) => reasonWords(trials.text(trials.reason, row)),
    },
  ];
}

function parameterColumn(trials: Trials, column: Column): TableColumn {
  return {
    name: `p.${column.name}`,
    label: column.name,
    numeric: column.kind === "number",
    width: 100,
    cell: (row) => trials.text(column, row),
    title: (row) => (column.kind === "number" ? String(column.data[row]) : trials.text(column, row)),
  };
}

/** Of one that has not ended what it has reached, and that this is not final. */
function valueCell(trials: Trials, row: number) {
  const soFar = trials.soFar(row);
  if (soFar === null) return number(trials.valued[row] ? trials.value[row] : null, 6);
  return (
    <span class="muted">
      <em>{number(soFar, 6)}</em> so far
    </span>
  );
}

/** Rows are drawn again when they change; how long ago something was changes all the time. */
function Ago({ at }: { at: number | null }) {
  return <>{ago(at, now.value)}</>;
}

function Took({ trials, row }: { trials: Trials; row: number }) {
  return <>{duration(orNull(trials.ranFor(row, now.value)))}</>;
}

function orNull(value: number): number | null {
  return Number.isNaN(value) ? null : value;
}

/**
 * A copy in order; what has no value comes last, whichever way. By the objective, what has not ended comes behind what
 * has: among one another in the same order, by what it has reached.
 */
export function sorted(trials: Trials, rows: Int32Array, by: string, down: boolean): Int32Array {
  const column = by.startsWith("p.") ? trials.parameters.get(by.slice(2)) : undefined;
  const data =
    column?.data ??
    {
      number: trials.number,
      status: trials.status,
      value: trials.value,
      step: trials.step,
      duration: trials.running,
      reported: trials.reported,
      ended: trials.ended,
      reason: trials.reason.data,
    }[by] ??
    trials.number;
  const labels = column?.kind === "category" ? column.labels : by === "reason" ? trials.reason.labels : null;
  const missing = (row: number) => Number.isNaN(data[row]) || (labels !== null && data[row] < 0);
  const sign = down ? -1 : 1;
  const reached = (row: number) => (by === "value" ? (trials.soFar(row) ?? Number.NaN) : Number.NaN);
  return rows.slice().sort((one, other) => {
    const [first, second] = [missing(one), missing(other)];
    if (first && second)
      return unlike(reached(one), reached(other), sign) || trials.number[one] - trials.number[other];
    if (first || second) return Number(first) - Number(second);
    const order = labels ? labels[data[one]].localeCompare(labels[data[other]]) : data[one] - data[other];
    return sign * order || sign * (trials.number[one] - trials.number[other]);
  });
}

/** By number in the direction of `sign`, NaN last; 0 of two that are none. */
function unlike(one: number, other: number, sign: number): number {
  const [first, second] = [Number.isNaN(one), Number.isNaN(other)];
  if (first || second) return Number(first) - Number(second);
  return sign * (one - other);
}
