// The README's session in TypeScript, with nothing but the types that are generated from the schema: checked by the
// compiler, then run by Node: `node generated_session.ts URL TOKEN`.
import assert from "node:assert/strict";
import process from "node:process";
import type { components, paths } from "../src/api/schema.d.ts";

type Methods = "get" | "put" | "post" | "patch" | "delete";
type Problem = components["schemas"]["Problem"];
/** The paths that take this method. */
type PathsOf<M extends Methods> = {
  [P in keyof paths]: paths[P][M] extends { responses: unknown } ? P : never;
}[keyof paths];
type Operation<M extends Methods, P extends PathsOf<M>> = paths[P][M];
type JsonOf<T> = T extends { content: { "application/json": infer J } } ? J : never;
/** What it answers where all is well, in JSON. */
type Answer<O> = O extends { responses: infer R } ? JsonOf<R[keyof R & (200 | 201)]> : never;
type ParametersOf<O, Place extends string> = O extends { parameters: { [place in Place]?: infer V } }
  ? V
  : never;
type BodyOf<O> = O extends { requestBody?: { content: { "application/json": infer B } } } ? B : never;

interface Asked<O> {
  path?: ParametersOf<O, "path">;
  query?: ParametersOf<O, "query">;
  header?: ParametersOf<O, "header">;
  body?: BodyOf<O>;
}

type Replied<T> = { ok: true; status: number; value: T } | { ok: false; status: number; problem: Problem };

class Client {
  readonly #url: string;
  readonly #token: string;

  constructor(url: string, token: string) {
    this.#url = url;
    this.#token = token;
  }

  async ask<M extends Methods, P extends PathsOf<M>>(
    method: M,
    path: P,
    asked: Asked<Operation<M, P>> = {},
  ): Promise<Replied<Answer<Operation<M, P>>>> {
    const parts: Record<string, unknown> = { ...(asked.path as object | undefined) };
    const place = String(path).replace(/\{(\w+)\}/g, (_, name: string) =>
      encodeURIComponent(String(parts[name])),
    );
    const query = new URLSearchParams(
      Object.entries({ ...(asked.query as object | undefined) }).map(([name, value]) => [
        name,
        String(value),
      ]),
    );
    const answer = await fetch(`${this.#url}${place}?${query}`, {
      method: method.toUpperCase(),
      headers: {
        authorization: `Bearer ${this.#token}`,
        ...(asked.header as Record<string, string> | undefined),
        ...(asked.body === undefined ? {} : { "content-type": "application/json" }),
      },
      body: asked.body === undefined ? null : JSON.stringify(asked.body),
    });
    const found: unknown = await answer.json();
    if (answer.ok) return { ok: true, status: answer.status, value: found as Answer<Operation<M, P>> };
    return { ok: false, status: answer.status, problem: found as Problem };
  }

  /** As `ask`; a problem ends the session. */
  async get<M extends Methods, P extends PathsOf<M>>(
    method: M,
    path: P,
    asked: Asked<Operation<M, P>> = {},
  ): Promise<Answer<Operation<M, P>>> {
    const replied = await this.ask(method, path, asked);
    if (!replied.ok)
      throw new Error(`${method} ${String(path)}: ${replied.status} ${replied.problem.detail}`);
    return replied.value;
  }
}

const FILE: components["schemas"]["ExperimentBody"] = {
  name: "quickstart",
  objective: { metric: "loss" },
  search_space: { x: { type: "float", low: -5, high: 5 } },
  budget: { trials: 24, parallel: 4 },
  trial: { command: "python train.py" },
};

async function session(client: Client): Promise<void> {
  const made = await client.get("post", "/api/v1/experiments", {
    body: FILE,
    header: { "idempotency-key": "once" },
  });
  assert("id" in made, "no dry run was asked for");
  const path: { experiment_id: string } = { experiment_id: made.id };
  const listed = await client.get("get", "/api/v1/experiments", { query: { limit: 10 } });
  assert.deepEqual(
    listed.items.map((one) => one.id),
    [made.id],
  );

  const paused = await client.get("post", "/api/v1/experiments/{experiment_id}/pause", { path });
  assert.equal(paused.status, "paused");
  const resumed = await client.get("post", "/api/v1/experiments/{experiment_id}/resume", { path });
  const parallel: number = resumed.budget.parallel;
  assert.equal(parallel, 4);

  const query = { columns: "number,status,value" };
  const table = await client.get("get", "/api/v1/experiments/{experiment_id}/table", { path, query });
  const statuses = table.columns.status;
  assert(statuses !== undefined && "codes" in statuses);
  assert.deepEqual(statuses.codes, []);
  const since = { since: table.revision };
  const changed = await client.get("get", "/api/v1/experiments/{experiment_id}/table", {
    path,
    query: since,
  });
  assert.equal(changed.since, table.revision);
  const best = await client.get("get", "/api/v1/experiments/{experiment_id}/best", { path });
  assert.equal(best.best, null);
  await client.get("get", "/api/v1/experiments/{experiment_id}/curves", { path, query: { limit: 10 } });
  const stopped = await client.get("post", "/api/v1/experiments/{experiment_id}/stop", { path });
  assert.equal(stopped.id, made.id);

  const nobody = { path: { experiment_id: "nobody" } };
  const missing = await client.ask("get", "/api/v1/experiments/{experiment_id}", nobody);
  assert(!missing.ok && missing.problem.detail.startsWith("there is no experiment 'nobody'"));
  const wrong = { ...FILE, seed: "seven" as unknown as number };
  const refused = await client.ask("post", "/api/v1/experiments", { body: wrong });
  assert(!refused.ok && refused.status === 422);
  assert.equal(refused.problem.errors?.[0]?.pointer, "/seed");
}

const [url, token] = process.argv.slice(2);
if (url === undefined || token === undefined) throw new Error("usage: node generated_session.ts URL TOKEN");
await session(new Client(url, token));
console.log("done");
