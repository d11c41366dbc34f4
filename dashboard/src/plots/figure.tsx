// A plot with its frame: sized by its place, drawn again when something changed, with what lies under the pointer, and
// to be taken away as PNG, SVG or CSV.
import { useSignal, useSignalEffect } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { SaveIcon } from "../parts/icons";
import { Menu } from "../parts/menu";
import { type Colours, colours, themeRevision } from "./colours";
import { type Pen, SvgPen } from "./svg";

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';

export interface Size {
  width: number;
  height: number;
}

export interface Pointer {
  x: number;
  y: number;
}

export interface Painting {
  /** The part that changes with the data. */
  paint(pen: Pen, size: Size, colours: Colours): void;
  /** What lies above it, and changes with the pointer. */
  over?(pen: Pen, size: Size, colours: Colours, pointer: Pointer | null): void;
}

interface Props {
  /** Of the files that are taken away. */
  name: string;
  title: string;
  /** What a person who does not see the picture is told. */
  summary: string;
  height: number;
  painting: Painting;
  csv?: () => string;
  controls?: ComponentChildren;
  tip?: (pointer: Pointer, size: Size) => ComponentChildren;
  onClick?: (pointer: Pointer, size: Size) => void;
  onDrag?: (from: Pointer, to: Pointer, size: Size, done: boolean) => void;
  onDoubleClick?: (pointer: Pointer, size: Size) => void;
  cursor?: string;
  children?: ComponentChildren;
}

const LEAST_DRAG = 4;

export function Figure(props: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const base = useRef<HTMLCanvasElement>(null);
  const above = useRef<HTMLCanvasElement>(null);
  const size = useSignal<Size>({ width: 0, height: props.height });
  const pointer = useSignal<Pointer | null>(null);
  const painting = useSignal(props.painting);
  painting.value = props.painting;
  const drag = useRef<Pointer | null>(null);
  const dragged = useRef(false);

  useEffect(() => {
    const box = frame.current;
    if (!box) return;
    const observer = new ResizeObserver(() => {
      size.value = { width: Math.floor(box.clientWidth), height: props.height };
    });
    observer.observe(box);
    return () => observer.disconnect();
  }, [props.height, size]);

  useSignalEffect(() => {
    draw(base.current, size.value, painting.value.paint, themeRevision.value);
    pointer.value; // what lies above is drawn again with what lies below
    drawAbove(above.current, size.value, painting.value, pointer.value);
  });

  const at = (event: PointerEvent | MouseEvent): Pointer => {
    const box = (event.currentTarget as HTMLElement).getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const move = (event: PointerEvent) => {
    const here = at(event);
    if (drag.current && props.onDrag && (dragged.current || far(drag.current, here))) {
      dragged.current = true;
      props.onDrag(drag.current, here, size.value, false);
    }
    pointer.value = here; // draws what lies above, once, with what the drag has changed
  };
  const down = (event: PointerEvent) => {
    if (!props.onDrag || event.button !== 0) return;
    (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
    drag.current = at(event);
    dragged.current = false;
  };
  const up = (event: PointerEvent) => {
    const from = drag.current;
    drag.current = null;
    if (from && dragged.current) props.onDrag?.(from, at(event), size.value, true);
    else if (event.button === 0) props.onClick?.(at(event), size.value);
  };
  const cancel = () => {
    drag.current = null;
    pointer.value = null;
  };

  const tip = pointer.value && !drag.current ? props.tip?.(pointer.value, size.value) : null;
  return (
    <figure class="figure">
      <figcaption class="figure-head">
        <h3>{props.title}</h3>
        <div class="figure-controls">
          {props.controls}
          <Menu label={`Save ${props.title}`} icon={<SaveIcon />}>
            <button type="button" role="menuitem" onClick={() => savePng(props, size.value)}>
              Picture (PNG)
            </button>
            <button type="button" role="menuitem" onClick={() => saveSvg(props, size.value)}>
              Drawing (SVG)
            </button>
            {props.csv && (
              <button
                type="button"
                role="menuitem"
                onClick={() => save(`${props.name}.csv`, "text/csv", props.csv?.() ?? "")}
              >
                Data (CSV)
              </button>
            )}
          </Menu>
        </div>
      </figcaption>
      <div
        class="figure-box"
        ref={frame}
        style={{ height: `${props.height}px`, cursor: props.cursor ?? "default" }}
        onPointerMove={move}
        onPointerDown={down}
        onPointerUp={up}
        onPointerLeave={() => {
          pointer.value = null;
        }}
        onPointerCancel={cancel}
        onDblClick={(event) => props.onDoubleClick?.(at(event), size.value)}
      >
        <canvas ref={base} role="img" aria-label={`${props.title}. ${props.summary}`} />
        <canvas ref={above} />
        {tip && pointer.value && (
          <Tip pointer={pointer.value} size={size.value}>
            {tip}
          </Tip>
        )}
      </div>
      {props.children}
    </figure>
  );
}

function Tip({ pointer, size, children }: { pointer: Pointer; size: Size; children: ComponentChildren }) {
  const left = pointer.x > size.width / 2;
  const place = left ? { right: `${size.width - pointer.x + 14}px` } : { left: `${pointer.x + 14}px` };
  return (
    <div
      class="tip"
      aria-hidden="true"
      style={{ ...place, top: `${Math.max(0, Math.min(pointer.y - 10, size.height - 70))}px` }}
    >
      {children}
    </div>
  );
}

function far(from: Pointer, to: Pointer): boolean {
  return Math.abs(from.x - to.x) > LEAST_DRAG || Math.abs(from.y - to.y) > LEAST_DRAG;
}

function sized(canvas: HTMLCanvasElement, { width, height }: Size): CanvasRenderingContext2D | null {
  const ratio = Math.min(2, devicePixelRatio || 1);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen?.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen?.clearRect(0, 0, width, height);
  return pen;
}

const drawn = new WeakMap<
  HTMLCanvasElement,
  { paint: unknown; width: number; height: number; theme: number }
>();

function draw(canvas: HTMLCanvasElement | null, size: Size, paint: Painting["paint"], theme: number): void {
  if (!canvas || size.width < 20) return;
  const before = drawn.get(canvas);
  if (
    before &&
    before.paint === paint &&
    before.width === size.width &&
    before.height === size.height &&
    before.theme === theme
  )
    return;
  drawn.set(canvas, { paint, width: size.width, height: size.height, theme });
  const pen = sized(canvas, size);
  if (pen) paint(pen, size, colours());
}

function drawAbove(
  canvas: HTMLCanvasElement | null,
  size: Size,
  painting: Painting,
  pointer: Pointer | null,
): void {
  if (!canvas || size.width < 20 || !painting.over) return;
  const pen = sized(canvas, size);
  if (pen) painting.over(pen, size, colours(), pointer);
}

function savePng(props: Props, size: Size): void {
  const canvas = document.createElement("canvas");
  canvas.width = size.width * 2;
  canvas.height = size.height * 2;
  const pen = canvas.getContext("2d");
  if (!pen) return;
  pen.scale(2, 2);
  pen.fillStyle = colours().surface;
  pen.fillRect(0, 0, size.width, size.height);
  props.painting.paint(pen, size, colours());
  canvas.toBlob((blob) => blob && saveBlob(`${props.name}.png`, blob), "image/png");
}

function saveSvg(props: Props, size: Size): void {
  const pen = new SvgPen(size.width, size.height, props.title);
  pen.fillStyle = colours().surface;
  pen.fillRect(0, 0, size.width, size.height);
  props.painting.paint(pen, size, colours());
  save(`${props.name}.svg`, "image/svg+xml", pen.toString());
}

export function save(name: string, type: string, content: string): void {
  saveBlob(name, new Blob([content], { type: `${type};charset=utf-8` }));
}

export function saveBlob(name: string, blob: Blob): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name.replace(/[^\w.-]+/g, "-");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Rows as CSV. Text that a spreadsheet would run as a formula gets an apostrophe before it. */
export function csv(rows: readonly (readonly unknown[])[]): string {
  return rows.map((row) => `${row.map(csvCell).join(",")}\r\n`).join("");
}

function csvCell(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const words = typeof value === "string" ? value : JSON.stringify(value);
  const safe = /^[=+\-@\t\r]/.test(words) ? `'${words}` : words;
  return /[",\r\n]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}
