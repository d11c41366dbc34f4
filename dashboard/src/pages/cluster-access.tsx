// Who may come in: tokens of people and agents, and browsers that are signed in. Shown to admins.
import { useSignal } from "@preact/signals";
import { read, ask as request, send } from "../api/client";
import { touch } from "../api/live";
import { asProblem, useResource } from "../api/resource";
import type { BrowserSession, ListedToken, NewToken } from "../api/shapes";
import { act, actOn } from "../parts/actions";
import { Awaited, Stale } from "../parts/awaited";
import { Copyable, faultWords } from "../parts/controls";
import { ask } from "../parts/dialog";
import { lastingOf } from "../parts/entered";
import { ago, clock, moment } from "../state/format";
import { now } from "../state/now";

const ROLES: readonly [ListedToken["role"], string][] = [
  ["read_only", "reads"],
  ["operator", "reads and changes experiments"],
  ["admin", "everything, tokens and nodes too"],
  ["agent", "one agent of this name"],
];
const ROLE_WORDS: Record<string, string> = {
  read_only: "read only",
  operator: "operator",
  admin: "admin",
  agent: "agent",
};

export function Access() {
  const found = useResource(
    ["access"],
    async (signal) => {
      const [tokens, sessions] = await Promise.all([
        read<{ items: ListedToken[] }>("tokens", signal),
        read<{ items: BrowserSession[] }>("sessions", signal),
      ]);
      return { tokens: tokens.items, sessions: sessions.items };
    },
    ["access"],
    1_000,
  );
  const all = found.data.value;
  return (
    <section aria-labelledby="access">
      <h2 id="access">Who may come in</h2>
      <p class="muted">
        What somebody asked for stands in the journal of the experiment with the name of their token.
      </p>
      {!all ? (
        <Awaited of={found} what="The tokens" />
      ) : (
        <>
          <Stale of={found} what="Tokens and browsers" />
          <Tokens tokens={all.tokens} />
          <Sessions sessions={all.sessions} />
        </>
      )}
    </section>
  );
}

function When({ at, none }: { at: string | null; none: string }) {
  const found = moment(at);
  return found === null ? (
    <span class="muted">{none}</span>
  ) : (
    <span title={clock(found)}>{ago(found, now.value)}</span>
  );
}

function Tokens({ tokens }: { tokens: ListedToken[] }) {
  const made = useSignal<NewToken | null>(null);
  const revoke = (name: string) =>
    ask({
      title: `Revoke the token ${name}?`,
      body: <p>Whoever uses it is turned away at once, browsers that were signed in with it too.</p>,
      yes: "Revoke",
      danger: true,
      onYes: async () => {
        await act(
          () => request("DELETE", `tokens/${encodeURIComponent(name)}`),
          `${name} is revoked`,
          "access",
        );
      },
    });
  return (
    <>
      <h3>Tokens</h3>
      {tokens.length > 0 && (
        <div class="scroll-x">
          <table class="list">
            <thead>
              <tr>
                <th scope="col">Name</th>
                <th scope="col">May</th>
                <th scope="col">Made by</th>
                <th scope="col">Last used</th>
                <th scope="col">State</th>
                <th scope="col">
                  <span class="unseen">actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {tokens.map((token) => (
                <tr key={`${token.name} ${token.created_at}`}>
                  <th scope="row" class="name">
                    <span class="clip" title={token.name}>
                      {token.name}
                    </span>
                  </th>
                  <td>{ROLE_WORDS[token.role] ?? token.role}</td>
                  <td>
                    {token.made_by ?? "–"}{" "}
                    <span class="muted">
                      <When at={token.created_at} none="" />
                    </span>
                  </td>
                  <td>
                    <When at={token.last_used_at} none="not yet" />
                  </td>
                  <td>
                    <TokenState token={token} />
                  </td>
                  <td class="numeric">
                    {token.state === "good" && (
                      <button type="button" class="quiet" onClick={() => revoke(token.name)}>
                        Revoke
                      </button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {made.value && (
        <div class="made" role="status">
          <strong>The token {made.value.name}</strong>: it is shown this once.
          <Copyable text={made.value.token} label="the token" />
        </div>
      )}
      <NewTokenForm
        onMade={(token) => {
          made.value = token;
        }}
      />
    </>
  );
}

function TokenState({ token }: { token: ListedToken }) {
  if (token.state === "revoked")
    return (
      <span class="muted">
        revoked <When at={token.revoked_at} none="" />
      </span>
    );
  if (token.state === "expired") return <span class="warn-text">expired</span>;
  const ends = moment(token.expires_at);
  return ends === null ? <>good</> : <span title={clock(ends)}>good until {clock(ends).slice(0, 10)}</span>;
}

function NewTokenForm({ onMade }: { onMade(token: NewToken): void }) {
  const name = useSignal("");
  const role = useSignal<ListedToken["role"]>("read_only");
  const days = useSignal("");
  const fault = useSignal("");
  const make = async () => {
    fault.value = "";
    try {
      const body = { name: name.value.trim(), role: role.value, expires_in: lastingOf(days.value) };
      onMade(await send<NewToken>("tokens", body));
      name.value = "";
      days.value = "";
    } catch (error) {
      fault.value = faultWords(asProblem(error));
    }
    touch("access");
  };
  return (
    <form
      class="row form-row"
      onSubmit={(event) => {
        event.preventDefault();
        void make();
      }}
    >
      <input
        aria-label="name of a new token"
        placeholder="whose token"
        autocomplete="off"
        value={name.value}
        onInput={(event) => {
          name.value = event.currentTarget.value;
        }}
      />
      <select
        aria-label="what the new token may"
        value={role.value}
        onChange={(event) => {
          role.value = event.currentTarget.value as ListedToken["role"];
        }}
      >
        {ROLES.map(([value, words]) => (
          <option key={value} value={value}>
            {ROLE_WORDS[value]}: {words}
          </option>
        ))}
      </select>
      <input
        class="days"
        aria-label="days that the new token is good"
        placeholder="days, or for ever"
        aria-invalid={fault.value !== ""}
        value={days.value}
        onInput={(event) => {
          days.value = event.currentTarget.value;
        }}
      />
      <button type="submit" disabled={!name.value.trim()}>
        Make a token
      </button>
      {fault.value && (
        <span class="fault" role="alert">
          {fault.value}
        </span>
      )}
    </form>
  );
}

function Sessions({ sessions }: { sessions: BrowserSession[] }) {
  return (
    <>
      <h3>Signed-in browsers</h3>
      {sessions.length === 0 ? (
        <p class="muted">No browser is signed in.</p>
      ) : (
        <div class="scroll-x">
          <table class="list">
            <thead>
              <tr>
                <th scope="col">Browser</th>
                <th scope="col">By the token</th>
                <th scope="col">From</th>
                <th scope="col">Last used</th>
                <th scope="col">
                  <span class="unseen">actions</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {sessions.map((one) => (
                <tr key={one.id}>
                  <th scope="row" class="name">
                    <span class="clip" title={one.browser ?? ""}>
                      {browserName(one.browser)}
                    </span>{" "}
                    {one.current && <span class="tag">this one</span>}
                  </th>
                  <td>
                    {one.name} <span class="muted">{ROLE_WORDS[one.role] ?? one.role}</span>
                  </td>
                  <td>{one.address ?? "–"}</td>
                  <td>
                    <When at={one.last_used_at ?? one.created_at} none="not yet" />
                  </td>
                  <td class="numeric">
                    {!one.current && (
                      <button
                        type="button"
                        class="quiet"
                        onClick={() =>
                          void actOn(
                            one.id,
                            () => request("DELETE", `sessions/${encodeURIComponent(one.id)}`),
                            "It is signed out",
                            "access",
                          )
                        }
                      >
                        Sign out
                      </button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

/** What a person calls it: the last product that its header names. */
export function browserName(header: string | null): string {
  if (!header) return "a program";
  const found = /(Edg|OPR|Firefox|HeadlessChrome|Chrome|Version)\/(\d+)/.exec(header);
  const system = /(Windows|Android|iPhone|iPad|Mac OS X|Linux)/.exec(header)?.[1] ?? "";
  const names: Record<string, string> = {
    Edg: "Edge",
    OPR: "Opera",
    HeadlessChrome: "Chrome",
    Version: "Safari",
  };
  const edge = /(Edg|OPR)\/(\d+)/.exec(header) ?? found;
  if (!edge) return header.slice(0, 60);
  return `${names[edge[1]] ?? edge[1]} ${edge[2]}${system ? ` on ${system.replace("Mac OS X", "macOS")}` : ""}`;
}
