// What a trial leaves: checkpoints, the files of its output folder, and what it was given.
import { useState } from "preact/hooks";
import { read, readAll, trialUrl } from "../api/client";
import { useResource } from "../api/resource";
import type { Checkpoint, TrialDetail, TrialFiles } from "../api/shapes";
import { Missing } from "../parts/awaited";
import { Copyable, Trouble } from "../parts/controls";
import { Download } from "../parts/download";
import { ago, bytes, clock, count, duration, moment, number, numeric } from "../state/format";
import { now } from "../state/now";

const FEW_FILES = 12; // shown before one asks for all
const MOST_FILES = 1_000;

export function Checkpoints({ id, trial }: { id: string; trial: TrialDetail }) {
  const found = useResource(
    [id, trial.number, "checkpoints"],
    (signal) => readAll<Checkpoint>(trialUrl(id, trial.number, "/checkpoints"), 1_000, signal),
    [id],
    1_000,
  );
  const all = found.data.value ?? [];
  if (all.length === 0) return <Missing of={found} what="Checkpoints" />;
  return (
    <section aria-labelledby="checkpoints">
      <h2 id="checkpoints">{count(all.length, "checkpoint")}</h2>
      <div class="scroll-x">
        <table class="list">
          <thead>
            <tr>
              <th scope="col" class="numeric">
                Step
              </th>
              <th scope="col" class="numeric">
                Value
              </th>
              <th scope="col" class="numeric">
                Size
              </th>
              <th scope="col" class="numeric">
                Attempt
              </th>
              <th scope="col">Written</th>
              <th scope="col">Where</th>
            </tr>
          </thead>
          <tbody>
            {all.map((one) => (
              <tr key={one.digest + one.step}>
                <td class="numeric">{number(one.step)}</td>
                <td class="numeric">{number(numeric(one.value))}</td>
                <td class="numeric">{bytes(one.size)}</td>
                <td class="numeric">{one.attempt}</td>
                <td title={clock(moment(one.at))}>
                  {ago(moment(one.at), now.value)}
                  {one.write_s !== null && <span class="muted">, in {duration(numeric(one.write_s))}</span>}
                  {one.damaged && <span class="bad-text"> damaged</span>}
                </td>
                <td>
                  {one.inline ? (
                    <Download
                      path={trialUrl(id, trial.number, `/checkpoints/${one.digest}`)}
                      name={`${id}-${trial.number}-${one.step}.checkpoint`}
                    >
                      Download
                    </Download>
                  ) : (
                    <code class="clip" title={one.location ?? ""}>
                      {one.location}
                    </code>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

/** The files of its output folder, each to be taken away. */
export function Outputs({ id, trial }: { id: string; trial: TrialDetail }) {
  const [all, setAll] = useState(false);
  const { output } = trial;
  const found = useResource(
    [id, trial.number, "files", output?.asset, output?.attempt],
    (signal) =>
      output?.asset
        ? read<TrialFiles>(trialUrl(id, trial.number, `/files?limit=${MOST_FILES}`), signal)
        : Promise.resolve(null),
    [],
  );
  if (!output) return null;
  const files = found.data.value?.items ?? [];
  const shown = all ? files : files.slice(0, FEW_FILES);
  return (
    <section aria-labelledby="outputs">
      <h2 id="outputs">Output</h2>
      <p class="muted">
        {count(output.files, "file")}, {bytes(output.size)}, of attempt {output.attempt}
        {output.step !== null && `, as it was at step ${number(output.step)}`}
      </p>
      {output.message && <p class={output.complete ? "note" : "warn-text"}>{output.message}</p>}
      {found.problem.value && <Trouble problem={found.problem.value} onAgain={found.reload} />}
      {shown.length > 0 && (
        <div class="scroll-x">
          <table class="list">
            <thead>
              <tr>
                <th scope="col">File</th>
                <th scope="col" class="numeric">
                  Size
                </th>
                <th scope="col">
                  <span class="unseen">download</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {shown.map((file) => (
                <tr key={file.path}>
                  <td class="path">{file.path}</td>
                  <td class="numeric">{bytes(file.size)}</td>
                  <td class="numeric">
                    <Download
                      path={trialUrl(
                        id,
                        trial.number,
                        `/files/${file.path.split("/").map(encodeURIComponent).join("/")}`,
                      )}
                      name={file.path.split("/").at(-1) ?? file.path}
                    >
                      Download
                    </Download>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {!all && files.length > FEW_FILES && (
        <button type="button" class="quiet" onClick={() => setAll(true)}>
          show all {files.length}
        </button>
      )}
      <p class="note">Everything into a folder:</p>
      <Copyable text={`tuner get ${id}/${trial.number} FOLDER`} label="the command that fetches the output" />
    </section>
  );
}

/** The assets whose paths it was given, by parameter. */
export function Inputs({ trial }: { trial: TrialDetail }) {
  const inputs = Object.entries(trial.inputs);
  if (inputs.length === 0) return null;
  return (
    <>
      <h3>Given to it</h3>
      <table class="pairs">
        <tbody>
          {inputs.map(([name, asset]) => (
            <tr key={name}>
              <th scope="row" class="clip" title={name}>
                {name}
              </th>
              <td>{Array.isArray(asset) ? asset.join(", ") : asset}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}
