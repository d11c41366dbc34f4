// The attempts of a trial: when and where each ran, how it ended, on each of its nodes, its log, and what it used.
import type { Attempt, NodeOfAttempt, TrialDetail } from "../api/shapes";
import { Badge, Switch } from "../parts/controls";
import { Log } from "../parts/log";
import { amend, query } from "../state/address";
import { ago, bytes, clock, count, duration, moment, number } from "../state/format";
import { now } from "../state/now";
import { attemptEnd, exitWords } from "../state/words";
import { Resources } from "./trial-resources";

export function Attempts({ trial, id }: { trial: TrialDetail; id: string }) {
  const asked = Number(query.value.get("attempt"));
  const attempts = trial.attempt_details;
  const chosen = attempts.find((one) => one.attempt === asked) ?? attempts[attempts.length - 1];
  const stream = query.value.get("log") === "stderr" ? "stderr" : "stdout";
  if (!chosen)
    return (
      <section>
        <h2>Attempts</h2>
        <p class="muted">It waits for a place; no process was started yet.</p>
      </section>
    );
  const runs = chosen.status === "running" || chosen.status === "starting";
  const wanted = query.value.get("node");
  const node =
    (wanted === null ? chosen.nodes.find(hasFailed) : chosen.nodes.find((one) => one.node === Number(wanted)))
      ?.node ?? 0;
  const cards = attempts
    .toReversed()
    .map((attempt) => (
      <AttemptCard
        key={attempt.attempt}
        attempt={attempt}
        chosen={attempt === chosen}
        several={attempts.length > 1}
      />
    ));
  if (isAsked(chosen))
    return (
      <section aria-labelledby="attempts">
        <h2 id="attempts">{count(attempts.length, "attempt")}</h2>
        <ol class="attempts">{cards}</ol>
        <p class="muted">An evaluator asked for it: what it prints and uses is its own.</p>
      </section>
    );
  const ranks = Array.from(
    { length: trial.processes_per_node },
    (_, at) => node * trial.processes_per_node + at,
  );
  const rank = ranks.length > 1 ? ranks.find((one) => String(one) === query.value.get("rank")) : undefined;
  return (
    <section aria-labelledby="attempts">
      <h2 id="attempts">{count(attempts.length, "attempt")}</h2>
      <ol class="attempts">{cards}</ol>
      <div class="section-head">
        <h2>Log</h2>
        <div class="row">
          {chosen.nodes.length > 1 && (
            <label class="inline">
              of{" "}
              <select
                value={String(node)}
                aria-label="the node whose log is shown"
                onChange={(event) => amend({ node: event.currentTarget.value, rank: null })}
              >
                {chosen.nodes.map((one) => (
                  <option key={one.node} value={String(one.node)}>
                    node {one.node}
                    {one.host && `, ${one.host}`}
                  </option>
                ))}
              </select>
            </label>
          )}
          {ranks.length > 1 && (
            <select
              value={rank === undefined ? "" : String(rank)}
              aria-label="the rank whose log is shown"
              onChange={(event) => amend({ node: String(node), rank: event.currentTarget.value || null })}
            >
              <option value="">all ranks{chosen.nodes.length > 1 && " of the node"}</option>
              {ranks.map((one) => (
                <option key={one} value={String(one)}>
                  rank {one}
                </option>
              ))}
            </select>
          )}
          <Switch label="stdout" on={stream === "stdout"} onChange={() => amend({ log: null })} />
          <Switch label="stderr" on={stream === "stderr"} onChange={() => amend({ log: "stderr" })} />
        </div>
      </div>
      <Log
        id={id}
        number={trial.number}
        attempt={chosen.attempt}
        node={node}
        {...(rank === undefined ? {} : { rank })}
        stream={stream}
        runs={runs}
      />
      <Resources id={id} number={trial.number} attempt={chosen.attempt} node={node} runs={runs} />
    </section>
  );
}

/** No node runs it: whoever asked for it does, wherever that is. */
function isAsked(attempt: Pick<Attempt, "agent">): boolean {
  return attempt.agent === "";
}

export function whereOf(attempt: Pick<Attempt, "agent" | "nodes">): string {
  if (attempt.nodes.length > 0) return `on ${count(attempt.nodes.length, "node")}`;
  return isAsked(attempt) ? "held by an evaluator" : `on ${attempt.agent}`;
}

function AttemptCard({ attempt, chosen, several }: { attempt: Attempt; chosen: boolean; several: boolean }) {
  const over = attempt.exit;
  const began = moment(attempt.started_at ?? attempt.created_at);
  const done = moment(attempt.ended_at);
  const bad = over !== null && (over.code !== 0 || over.cause === "out_of_memory") && !over.stop_reason;
  return (
    <li class={chosen ? "chosen" : ""}>
      <div class="row">
        <strong>Attempt {attempt.attempt}</strong> <Badge status={attempt.status} />
        <span class={bad ? "bad-text" : ""}>{attemptEnd(attempt)}</span>
        <div class="grow" />
        {several && !chosen && (
          <button type="button" class="quiet" onClick={() => amend({ attempt: String(attempt.attempt) })}>
            its log
          </button>
        )}
      </div>
      <p class="muted">
        {began !== null && <span title={clock(began)}>started {ago(began, now.value)}</span>}
        {began !== null && done !== null && `, ran ${duration((done - began) / 1_000)}`}
        {` · ${whereOf(attempt)}`}
        {attempt.pid ? `, process ${attempt.pid}` : ""}
        {attempt.restored_step !== null && ` · went on from step ${attempt.restored_step}`}
        {attempt.devices.length > 0 &&
          ` · held ${attempt.devices.map((device) => `${device.uuid}${device.share < 1 ? ` (${number(device.share)})` : ""}`).join(", ")}`}
        {over?.peak_memory_bytes ? ` · most memory ${bytes(over.peak_memory_bytes)}` : ""}
        {attempt.peak_gpu_bytes ? `, on the GPU ${bytes(attempt.peak_gpu_bytes)}` : ""}
        {over?.processor_s ? ` · ${duration(over.processor_s)} of processor time` : ""}
      </p>
      {bad && over?.tail && <pre class="tail">{over.tail}</pre>}
      {attempt.nodes.length > 0 && <Parts nodes={attempt.nodes} attempt={attempt.attempt} />}
    </li>
  );
}

/** Whether it ended there by its own fault, and not because the others had ended. */
function hasFailed(one: NodeOfAttempt): boolean {
  return one.exit !== null && one.exit.code !== 0 && !one.exit.stop_reason;
}

/** What ran on each node: where, until when, and how it ended there. */
function Parts({ nodes, attempt }: { nodes: readonly NodeOfAttempt[]; attempt: number }) {
  return (
    <div class="scroll-x">
      <table class="list parts" aria-label={`nodes of attempt ${attempt}`}>
        <thead>
          <tr>
            <th scope="col" class="numeric">
              Node
            </th>
            <th scope="col">Host</th>
            <th scope="col">State</th>
            <th scope="col">End</th>
            <th scope="col">Process</th>
            <th scope="col">
              <span class="unseen">log</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {nodes.map((one) => {
            const bad = hasFailed(one);
            return (
              <tr key={one.node}>
                <td class="numeric">{one.node}</td>
                <td>
                  {one.host || "–"} <span class="muted">{one.agent}</span>
                </td>
                <td>{one.state}</td>
                <td class={bad ? "bad-text" : ""} title={clock(moment(one.ended_at))}>
                  {one.exit ? exitWords(one.exit) : one.state === "ended" ? "nobody knows how" : "–"}
                  {bad && one.exit?.tail && (
                    <details>
                      <summary>what it said last</summary>
                      <pre class="tail">{one.exit.tail}</pre>
                    </details>
                  )}
                </td>
                <td>{one.pid ?? "–"}</td>
                <td>
                  <button
                    type="button"
                    class="quiet"
                    onClick={() => amend({ attempt: String(attempt), node: String(one.node), rank: null })}
                  >
                    its log
                  </button>
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
