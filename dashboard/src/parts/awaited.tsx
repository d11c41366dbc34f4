// In place of what is read: that it is being read, or why it cannot be had, and the way to ask again.
import { UNREACHABLE } from "../api/client";
import type { Resource } from "../api/resource";
import { Loading, Trouble } from "./controls";

/** Until there is something: a shimmer is no answer to a read that has failed. */
export function Awaited({ of, what }: { of: Resource<unknown>; what: string }) {
  const problem = of.problem.value;
  return problem ? <Trouble problem={problem} onAgain={of.reload} /> : <Loading what={what} />;
}

/** Where something is shown already: that it may not be what is now. Of a service that is away the whole page says so. */
export function Stale({ of, what }: { of: Resource<unknown>; what: string }) {
  const problem = of.problem.value;
  if (!problem || !of.stale.value || problem.status === UNREACHABLE) return null;
  return (
    <p class="banner bad" role="alert">
      <span>
        {what} could not be read anew, and may be others by now: {problem.detail}
      </span>
      <button type="button" class="small" onClick={of.reload}>
        Try again
      </button>
    </p>
  );
}

/** In place of one figure of several, or over what it shows. */
export function Missing({ of, what }: { of: Resource<unknown>; what: string }) {
  const problem = of.problem.value;
  if (of.data.value !== undefined) return <Stale of={of} what={what} />;
  if (!problem) return null;
  return (
    <div class="figure">
      <h3>{what}</h3>
      <p class="note" role="alert">
        {problem.detail}
      </p>
      <button type="button" class="quiet" onClick={of.reload}>
        Try again
      </button>
    </div>
  );
}
