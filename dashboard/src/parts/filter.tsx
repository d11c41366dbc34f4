// The field for the filter, with what is wrong beside it.
import { useSignal } from "@preact/signals";
import type { Filtered } from "../pages/filtered";
import { amend } from "../state/address";
import { count } from "../state/format";

export function FilterField({ filtered, total }: { filtered: Filtered; total: number }) {
  const helped = useSignal(false);
  return (
    <div class="bar filter-bar">
      <input
        data-filter
        type="search"
        class="filter"
        spellcheck={false}
        placeholder="status = failed and lr < 0.01   /"
        aria-label="filter trials"
        aria-invalid={filtered.fault !== ""}
        value={filtered.text}
        onInput={(event) => amend({ q: event.currentTarget.value })}
      />
      <button
        type="button"
        class="icon"
        aria-expanded={helped.value}
        aria-label="How to filter"
        title="How to filter"
        onClick={() => {
          helped.value = !helped.value;
        }}
      >
        ?
      </button>
      <span class="muted" role="status">
        {filtered.passes ? `${count(filtered.rows.length, "trial")} of ${total}` : count(total, "trial")}
      </span>
      {filtered.text && (
        <button type="button" class="quiet" onClick={() => amend({ q: null })}>
          show all
        </button>
      )}
      {filtered.fault && (
        <span class="fault" role="alert">
          {filtered.fault}
        </span>
      )}
      {helped.value && (
        <p class="note filter-help">
          <code>status = failed</code> <code>lr &lt; 0.01 and value &gt; 0.9</code>{" "}
          <code>optimizer in {"{sgd, adam}"}</code> <code>lr in 0.001..0.01</code> <code>not #37</code>{" "}
          <code>early_stopped or failed</code>. Names are those of the parameters and{" "}
          <code>status reason number value step attempts duration</code>; a name with spaces stands in quotes,
          and a parameter that is called like one of these is <code>parameters.value</code>. The filter holds
          for the table and for every plot.
        </p>
      )}
    </div>
  );
}
