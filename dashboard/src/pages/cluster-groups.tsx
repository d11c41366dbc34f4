// Quota groups: how many GPUs each may hold, and who draws from it.
import { useSignal } from "@preact/signals";
import { ask as request } from "../api/client";
import { changeGroup, makeGroup } from "../api/groups";
import { touch } from "../api/live";
import { may } from "../api/session";
import type { QuotaGroup } from "../api/shapes";
import { act, actOn } from "../parts/actions";
import { EditInPlace, To } from "../parts/controls";
import { ask } from "../parts/dialog";
import { numberOf } from "../parts/entered";
import { experimentPath } from "../state/address";
import { number } from "../state/format";

export function Groups({ groups, names }: { groups: QuotaGroup[]; names: ReadonlyMap<string, string> }) {
  const name = useSignal("");
  const setGpus = async (group: string, text: string) => {
    await changeGroup(group, { gpus: text === "" ? null : numberOf(text) });
    touch("cluster");
  };
  const remove = (group: string) =>
    ask({
      title: `Remove the group ${group}?`,
      body: <p>Its share goes back to all.</p>,
      yes: "Remove",
      danger: true,
      onYes: async () => {
        const path = `quota-groups/${encodeURIComponent(group)}`;
        await actOn(path, () => request("DELETE", path), "Removed", "cluster");
      },
    });
  return (
    <section aria-labelledby="groups">
      <h2 id="groups">Quota groups</h2>
      <div class="scroll-x">
        <table class="list">
          <thead>
            <tr>
              <th scope="col">Group</th>
              <th scope="col" class="numeric">
                GPUs held
              </th>
              <th scope="col" class="numeric">
                Quota
              </th>
              <th scope="col">Borrows what is free</th>
              <th scope="col">Experiments</th>
              <th scope="col">
                <span class="unseen">actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {groups.map((group) => (
              <tr key={group.name}>
                <th scope="row">{group.name}</th>
                <td class="numeric">{number(group.used)}</td>
                <td class="numeric">
                  <EditInPlace
                    by="set_quota_group"
                    label={`GPUs of ${group.name}`}
                    type="number"
                    value={String(group.gpus ?? "")}
                    shown={group.gpus === null ? "no bound" : number(group.gpus)}
                    hint="empty: no bound"
                    onSave={(text) => setGpus(group.name, text)}
                  />
                </td>
                <td>
                  <input
                    type="checkbox"
                    aria-label={`${group.name} borrows`}
                    disabled={!may("set_quota_group")}
                    title={may("set_quota_group") ? "" : "admins change it"}
                    checked={group.borrows}
                    onChange={(event) => {
                      const borrows = event.currentTarget.checked;
                      void actOn(
                        group.name,
                        () => changeGroup(group.name, { borrows }),
                        "Changed",
                        "cluster",
                      );
                    }}
                  />
                </td>
                <td>
                  {group.experiments.slice(0, 8).map((id) => (
                    <To key={id} to={experimentPath(id)} class="chip">
                      {names.get(id) ?? id}
                    </To>
                  ))}
                  {group.experiments.length === 0 && <span class="muted">none</span>}
                </td>
                <td>
                  {group.name !== "default" && may("delete_quota_group") && (
                    <button type="button" class="quiet" onClick={() => remove(group.name)}>
                      Remove
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {may("set_quota_group") && (
        <form
          class="row"
          onSubmit={(event) => {
            event.preventDefault();
            const made = name.value.trim();
            void act(() => makeGroup(made), `The group ${made} has a quota of 1 GPU`, "cluster").then(
              (done) => {
                if (done) name.value = "";
              },
            );
          }}
        >
          <input
            aria-label="name of a new group"
            placeholder="new group"
            value={name.value}
            onInput={(event) => {
              name.value = event.currentTarget.value;
            }}
          />
          <button type="submit" disabled={!name.value.trim()}>
            Add a group
          </button>
        </form>
      )}
    </section>
  );
}
