// Thousands of trials in a table of which only the rows on the screen exist.

import { useSignal } from "@preact/signals";
import { elementScroll, observeElementOffset, observeElementRect, Virtualizer } from "@tanstack/virtual-core";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";

export interface TableColumn {
  name: string;
  label: string;
  numeric?: boolean;
  /** Pixels; the last one takes what is left. */
  width: number;
  cell(row: number): ComponentChildren;
  title?(row: number): string;
}

interface Props {
  label: string;
  rows: Int32Array;
  columns: readonly TableColumn[];
  sort: { name: string; down: boolean };
  onSort(name: string): void;
  onOpen(row: number): void;
  rowKey(row: number): string;
  rowLabel(row: number): string;
  selected?: ReadonlySet<number>;
}

const ROW = 34;
const OVERSCAN = 12;

export function VirtualTable(props: Props) {
  const { rows, columns, sort } = props;
  const box = useRef<HTMLDivElement>(null);
  const drawn = useSignal(0);
  const virtualizer = useMemo(
    () =>
      new Virtualizer<HTMLDivElement, Element>({
        count: 0,
        getScrollElement: () => box.current,
        estimateSize: () => ROW,
        overscan: OVERSCAN,
        scrollToFn: elementScroll,
        observeElementRect,
        observeElementOffset,
        onChange: () => {
          drawn.value++;
        },
      }),
    [drawn],
  );
  if (virtualizer.options.count !== rows.length)
    virtualizer.setOptions({ ...virtualizer.options, count: rows.length });
  useEffect(() => virtualizer._didMount(), [virtualizer]);
  useLayoutEffect(() => virtualizer._willUpdate());
  drawn.value; // drawn again as it scrolls
  const whole = columns.reduce((sum, column) => sum + column.width, 16);
  const widths = columns.map((column, place) =>
    place === columns.length - 1 ? `minmax(${column.width}px, 1fr)` : `${column.width}px`,
  );
  const template = { gridTemplateColumns: widths.join(" "), minWidth: `${whole}px` };
  return (
    <div
      class="table"
      role="table"
      aria-label={props.label}
      aria-rowcount={rows.length + 1}
      aria-colcount={columns.length}
    >
      <div class="table-scroll" ref={box} tabIndex={0} role="rowgroup">
        <div class="table-row head" role="row" aria-rowindex={1} style={template}>
          {columns.map((column) => (
            <div
              key={column.name}
              role="columnheader"
              class={column.numeric ? "numeric" : ""}
              aria-sort={sort.name === column.name ? (sort.down ? "descending" : "ascending") : "none"}
            >
              <button type="button" title={column.label} onClick={() => props.onSort(column.name)}>
                <span class="clip">{column.label}</span>
                <span aria-hidden="true">{sort.name === column.name ? (sort.down ? " ↓" : " ↑") : ""}</span>
              </button>
            </div>
          ))}
        </div>
        <div
          class="table-body"
          role="presentation"
          style={{ height: `${virtualizer.getTotalSize()}px`, minWidth: `${whole}px` }}
        >
          {virtualizer.getVirtualItems().map((item) => {
            const row = rows[item.index];
            if (row === undefined) return null;
            return (
              <div
                key={props.rowKey(row)}
                class="table-row"
                role="row"
                data-row
                tabIndex={-1}
                aria-rowindex={item.index + 2}
                aria-label={props.rowLabel(row)}
                style={{ ...template, transform: `translateY(${item.start}px)` }}
                onClick={(event) => {
                  if (!(event.target as Element).closest("a")) props.onOpen(row); // a link goes there by itself
                }}
                onKeyDown={(event) => {
                  if (event.key === "Enter" && event.target === event.currentTarget) props.onOpen(row);
                }}
              >
                {columns.map((column) => (
                  <div
                    key={column.name}
                    role="cell"
                    class={column.numeric ? "numeric clip" : "clip"}
                    title={column.title?.(row)}
                  >
                    {column.cell(row)}
                  </div>
                ))}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}
