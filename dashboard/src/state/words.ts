// What happened and why, in sentences that a person understands without a page of documentation.
import type {
  Attempt,
  Exit,
  Experiment,
  ExperimentReason,
  JournalLine,
  Trial,
  TrialReason,
} from "../api/shapes";
import { bytes, cell, count, duration, number } from "./format";

export const STATUS_WORDS: Record<string, string> = {
  created: "starting",
  waiting: "waiting",
  running: "running",
  paused: "paused",
  stopping: "stopping",
  stopped: "stopped",
  completed: "completed",
  succeeded: "succeeded",
  failed: "failed",
  early_stopped: "stopped early",
  canceled: "given up",
  starting: "starting",
  exited: "ended",
  lost: "lost",
};

export function statusWords(status: string): string {
  return STATUS_WORDS[status] ?? status.replaceAll("_", " ");
}

const TRIAL_REASONS: Record<TrialReason, string> = {
  none: "",
  suggested: "the tuner proposed it; it waits for a place",
  added: "a person added it; it waits for a place",
  launched: "its process was started",
  asked: "an evaluator has asked for it, and holds it",
  final_metric: "it ended by itself and reported its final value",
  stopped_by_assessor: "the assessor stopped it: it did worse than others had at that step",
  stopped_by_user: "a person gave it up",
  experiment_stopped: "the experiment was stopped; it goes on when that is resumed",
  resumed: "the experiment was resumed; it goes on",
  rung_reached: "it rests at the step up to which the advisor let it run",
  promoted: "the advisor lets it run further",
  forked: "the advisor lets it go on from another trial's checkpoint",
  not_promoted: "the advisor did not let it run further",
  exit_code: "its process ended with an error",
  signal: "its process was ended by a signal that it brought on itself",
  out_of_memory: "it ran out of memory",
  no_final_metric: "it ended without reporting its final value",
  launch_failed: "its process could not be started",
  files_damaged: "the files of its attempt were removed or damaged while it ran",
  heartbeat_missed: "it reported nothing for longer than it may",
  told_failed: "its evaluator says that it failed",
  max_duration: "it ran longer than it may",
  crash_loop: "it died again and again without progress",
  preempted: "it was interrupted from outside; it goes on in a new attempt",
  device_lost: "a device it held failed; it goes on in a new attempt",
  assets_missing: "the store had not what it is given; it goes on when the experiment is resumed",
  nodes_not_ready: "not all of its nodes could begin; it goes on in a new attempt",
  device_unavailable: "a device was not free when it was to start; it goes on in a new attempt",
  lease_expired: "its evaluator told nothing for too long; it goes to the next one that asks",
  attempt_lost: "its process or its machine is gone; it goes on in a new attempt",
};

const EXPERIMENT_REASONS: Record<ExperimentReason, string> = {
  none: "",
  requested: "as asked for",
  budget_reached: "every trial of the budget has run",
  duration_reached: "the time of the budget is used up",
  space_exhausted: "the search space has nothing left to try",
  advisor_done: "the advisor has run all that it planned",
  algorithm_failed: "the tuner or the assessor raised an error",
  algorithm_hangs: "the tuner or the assessor did not answer in time, several times",
  worker_dies: "the process of the tuner died again and again",
  not_supported: "the algorithm cannot search this space",
  assets_missing: "the store has not what trials are given; bring it back, then resume",
  nodes_not_ready: "trials of several nodes could not begin; see to the nodes, then resume",
  rows_damaged: "", // the service's own sentence names the row
  service_fault: "", // the service's own sentence names the error
  too_many_failures: "more trials failed than the budget allows",
  trials_added: "it runs what was added after its end",
  identical_failures: "", // the service's own sentence names the error
};

export function reasonWords(reason: string | undefined): string {
  if (!reason) return "";
  const known: Record<string, string> = { ...EXPERIMENT_REASONS, ...TRIAL_REASONS };
  return known[reason] ?? reason.replaceAll("_", " ");
}

/** Why a trial is what it is; the service's own sentence says the particulars. */
export function whyTrial(trial: Pick<Trial, "reason" | "message">): string {
  return withParticulars(TRIAL_REASONS[trial.reason] ?? trial.reason.replaceAll("_", " "), trial.message);
}

export function whyExperiment(experiment: Pick<Experiment, "status" | "reason" | "message">): string {
  if (experiment.reason === "requested") return experiment.message || (REQUESTED[experiment.status] ?? "");
  return withParticulars(
    EXPERIMENT_REASONS[experiment.reason] ?? experiment.reason.replaceAll("_", " "),
    experiment.message,
  );
}

const REQUESTED: Record<string, string> = {
  paused: "a person paused it: running trials go on, no new ones start",
  stopping: "a person stops it",
  stopped: "a person stopped it; its trials kept their checkpoints",
};

const ASIDE = new Set(["rows_damaged", "service_fault"]);

/** Whether it rests by its own trouble, and not because a person wanted it so; or has ended and was set aside since. */
export function isTroubled(experiment: Pick<Experiment, "status" | "reason">): boolean {
  if (experiment.status !== "paused") return ASIDE.has(experiment.reason);
  return experiment.reason !== "requested";
}

function withParticulars(sentence: string, particulars: string): string {
  if (!particulars || particulars === sentence) return sentence;
  return sentence ? `${sentence} (${particulars})` : particulars;
}

const SIGNALS: Record<number, string> = {
  1: "SIGHUP",
  2: "SIGINT",
  6: "SIGABRT",
  7: "SIGBUS",
  8: "SIGFPE",
  9: "SIGKILL",
  11: "SIGSEGV",
  15: "SIGTERM",
};

const CAUSES: Record<string, string> = {
  exited: "ended by itself",
  out_of_memory: "killed: out of memory",
  stopped: "stopped as it was told",
  launch_failed: "could not be started",
};

/** How one process life ended: "killed: CUDA out of memory", "exit code 1: ValueError: …". */
export function attemptEnd(attempt: Attempt): string {
  if (!attempt.exit) return attempt.status === "lost" ? "lost: nobody knows how it ended" : attempt.message;
  return exitWords(attempt.exit);
}

/** How one process ended, of an attempt or of its part on one node. */
export function exitWords(ended: Exit): string {
  const last = lastLine(ended.tail);
  const memory = ended.memory_limit_bytes ? ` (limit ${bytes(ended.memory_limit_bytes)})` : "";
  if (/out of memory/i.test(last) && ended.code !== 0) return `killed: ${last}`;
  if (ended.cause === "out_of_memory") return `killed: out of memory${memory}`;
  if (ended.signal)
    return `ended by ${SIGNALS[ended.signal] ?? `signal ${ended.signal}`}${ended.stop_reason ? `: ${reasonWords(ended.stop_reason)}` : ""}`;
  if (ended.code) return `exit code ${ended.code}${last ? `: ${last}` : ""}`;
  if (ended.stop_reason) {
    const why = ended.stop_reason === "stopped" ? "" : reasonWords(ended.stop_reason);
    return `stopped as it was told${why && `: ${why}`}`;
  }
  return CAUSES[ended.cause] ?? ended.cause.replaceAll("_", " ");
}

export function lastLine(text: string | null | undefined): string {
  const lines = (text ?? "").trimEnd().split("\n");
  return lines[lines.length - 1].trim().slice(0, 300);
}

export interface Told {
  /** What it is about, for the filter of the journal. */
  tone: "plain" | "good" | "warning" | "bad";
  trial: number | null;
  sentence: string;
}

/** One line of the journal as a sentence; `trials` knows what trials came to. */
export function journalWords(line: JournalLine, objective: string): Told {
  const payload = line.payload;
  const number_ = typeof payload.number === "number" ? payload.number : null;
  const trial = number_ === null ? "" : `trial ${number_}`;
  const by = typeof payload.by === "string" ? ` (asked for by ${payload.by})` : "";
  const told = (sentence: string, tone: Told["tone"] = "plain"): Told => ({
    tone,
    trial: number_,
    sentence: sentence + by,
  });
  const attempt = Number(payload.attempt ?? 1);
  switch (line.kind) {
    case "suggestion_requested":
      return told(
        payload.index
          ? `The script of ${trial} asked for further parameters`
          : `The tuner was asked for the parameters of ${trial}`,
      );
    case "attempt_launched":
      return told(
        attempt > 1 ? `Attempt ${attempt} of ${trial} was started` : `The process of ${trial} was started`,
      );
    case "attempt_ended":
      return attemptEndedWords(payload, trial, told);
    case "reports":
      return told(
        `${sentenceCase(trial)} reported (records ${cell(payload.first)} to ${cell(payload.last)})`,
      );
    case "stop_advised":
      return told(
        `The assessor stops ${trial} at step ${cell(payload.step)}${because(payload.message)}`,
        "warning",
      );
    case "pause_advised":
      return told(`The advisor lets ${trial} rest${because(payload.message)}`);
    case "trial_rested":
      return told(`${sentenceCase(trial)} rests at step ${cell(payload.step)}`);
    case "trial_promoted":
      return told(
        `The advisor lets ${trial} go on${payload.until_step ? ` to step ${cell(payload.until_step)}` : " to its end"}`,
        "good",
      );
    case "trial_forked":
      return told(
        `${sentenceCase(trial)} begins with the checkpoint of trial ${cell(payload.from)} at step ${cell(payload.step)}`,
      );
    case "trial_preempted":
      return told(
        `${sentenceCase(trial)} makes room for trial ${cell(payload.for)}, which has priority ${cell(payload.priority)}`,
        "warning",
      );
    case "output_collected":
      return outputWords(payload, trial, told);
    case "trial_added":
      return told(
        payload.retry_of
          ? `Trial ${cell(payload.retry_of)} is tried again as ${trial}`
          : `A person added ${trial}`,
      );
    case "trial_stop_requested":
      return told(`A person gave up ${trial}`, "warning");
    case "trial_ended":
      return trialEndedWords(payload, trial, objective, told);
    case "experiment_moved":
      return movedWords(payload, told);
    case "experiment_changed":
      return told(`Changed: ${changes(payload)}`);
    case "search_space_changed":
      return told("The search space was changed: it holds for every suggestion from here on");
    case "outcomes_imported":
      return told(
        `${count(Array.isArray(payload.outcomes) ? payload.outcomes.length : 0, "result")} from elsewhere were told to the tuner`,
      );
    case "record_rejected":
      return told(`A report of ${trial} made no sense and was left out: ${cell(payload.error)}`, "warning");
    case "noticed":
      return told(`${sentenceCase(trial)}: ${cell(payload.notice)}`, "warning");
    case "algorithm_faulted":
      return told(`The ${cell(payload.queue)} failed: ${cell(payload.message)}`, "bad");
    case "archive_moved":
      return told(archiveWords(payload.phase), payload.phase === "failed" ? "warning" : undefined);
    case "line_skipped":
      return told(`Line ${cell(payload.line)} of the ${cell(payload.queue)} was left out`, "warning");
    case "worker_replaced":
      return told(`The process of the algorithms was started again: ${cell(payload.why)}`, "warning");
    default:
      return told(line.kind.replaceAll("_", " "));
  }
}

export function archiveWords(phase: unknown): string {
  switch (phase) {
    case "writing":
      return "Its metrics are being archived";
    case "clearing":
      return "The archive of its metrics is complete; their rows leave the database";
    case "archived":
      return "Its metrics are archived";
    case "restoring":
      return "Its metrics are being put back";
    case "failed":
      return "Its metrics could not be archived";
    case "removing":
      return "It is being deleted";
    default:
      return "Its metrics are in the database again";
  }
}

function outputWords(
  payload: JournalLine["payload"],
  trial: string,
  told: (s: string, t?: Told["tone"]) => Told,
): Told {
  const why = payload.message ? `: ${cell(payload.message)}` : "";
  if (!payload.asset) return told(`Nothing of what ${trial} left could be kept${why}`, "warning");
  const size = `${count(Number(payload.files), "file")}, ${bytes(Number(payload.size))}`;
  if (!payload.is_complete) return told(`Not all of what ${trial} left is kept (${size})${why}`, "warning");
  return told(`What ${trial} left is kept (${size})`);
}

function attemptEndedWords(
  payload: JournalLine["payload"],
  trial: string,
  told: (s: string, t?: Told["tone"]) => Told,
): Told {
  const attempt = Number(payload.attempt ?? 1);
  const who = attempt > 1 ? `Attempt ${attempt} of ${trial}` : `The process of ${trial}`;
  if (payload.cause === "out_of_memory") return told(`${who} was killed: out of memory`, "bad");
  const signal = Number(payload.signal ?? 0);
  if (signal) return told(`${who} was ended by ${SIGNALS[signal] ?? `signal ${signal}`}`, "warning");
  if (payload.code) return told(`${who} ended with exit code ${cell(payload.code)}`, "bad");
  return told(`${who} ended`);
}

function trialEndedWords(
  payload: JournalLine["payload"],
  trial: string,
  objective: string,
  told: (s: string, t?: Told["tone"]) => Told,
): Told {
  const outcome = (payload.outcome ?? {}) as Record<string, unknown>;
  const value = typeof outcome.value === "number" ? ` with ${objective} ${number(outcome.value)}` : "";
  const who = trial || `trial ${cell(outcome.number)}`;
  const made = (sentence: string, tone: Told["tone"]): Told => {
    const found = told(sentence, tone);
    return { ...found, trial: found.trial ?? (typeof outcome.number === "number" ? outcome.number : null) };
  };
  switch (outcome.status) {
    case "succeeded":
      return made(`${sentenceCase(who)} succeeded${value}`, "good");
    case "early_stopped":
      return made(
        `${sentenceCase(who)} was stopped early${value}: ${reasonWords(String(outcome.reason ?? "stopped_by_assessor"))}`,
        "warning",
      );
    case "failed":
      return made(
        `${sentenceCase(who)} failed${outcome.reason ? `: ${reasonWords(String(outcome.reason))}` : ""}`,
        "bad",
      );
    case "canceled":
      return made(`${sentenceCase(who)} was given up`, "warning");
    default:
      return made(`${sentenceCase(who)} ended`, "plain");
  }
}

function movedWords(payload: JournalLine["payload"], told: (s: string, t?: Told["tone"]) => Told): Told {
  const reason =
    payload.reason === "requested" && payload.by ? "" : reasonWords(String(payload.reason ?? ""));
  const why = withParticulars(reason, String(payload.message ?? ""));
  const tone = payload.to === "failed" ? "bad" : payload.to === "completed" ? "good" : "plain";
  return told(`The experiment is ${statusWords(String(payload.to))}${why ? `: ${why}` : ""}`, tone);
}

function because(message: unknown): string {
  return typeof message === "string" && message ? `: ${message}` : "";
}

function changes(payload: JournalLine["payload"]): string {
  const parts = Object.entries(payload).filter(([name, value]) => value !== null && name !== "by");
  return parts
    .map(
      ([name, value]) =>
        `${name.replaceAll("_", " ")} ${name.includes("duration") && typeof value === "number" ? duration(value) : cell(value)}`,
    )
    .join(", ");
}

export function sentenceCase(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
