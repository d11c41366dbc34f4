// The best so far as a line of a few pixels, for lists.
import { useMemo } from "preact/hooks";
import { extent, makeScale } from "./scales";

export function sparkPath(values: readonly number[], width: number, height: number): string {
  const finite = values.filter(Number.isFinite);
  if (finite.length < 2) return "";
  const y = makeScale(extent(finite) ?? { low: 0, high: 1 }, height - 2, 2);
  const points = finite.map((value, place) => [(place / (finite.length - 1)) * (width - 2) + 1, y.at(value)]);
  return points
    .map(([x, y], place) =>
      place === 0 ? `M${x.toFixed(1)} ${y.toFixed(1)}` : `H${x.toFixed(1)}V${y.toFixed(1)}`,
    )
    .join("");
}

export function Sparkline({ values, label }: { values: readonly number[]; label: string }) {
  const path = useMemo(() => sparkPath(values, 96, 24), [values]);
  if (!path) return <span class="muted">–</span>;
  return (
    <svg class="spark" width="96" height="24" role="img" aria-label={label}>
      <title>{label}</title>
      <path d={path} />
    </svg>
  );
}
