// The answers of the API as the page reads them.

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type Values = Record<string, Json>;

export interface Objective {
  metric: string;
  goal: "minimize" | "maximize";
}

export interface Budget {
  trials: number | null;
  parallel: number;
  duration: number | null;
  failures: number;
}

export interface Best {
  number: number;
  value: number | string | null;
  parameters: Values | null;
}

export interface Experiment {
  id: string;
  name: string;
  status: string;
  reason: string;
  message: string;
  objective: Objective | Objective[];
  budget: Budget;
  counts: Record<string, number>;
  best: Best | null;
  created_at: string;
  started_at: string | null;
  ended_at: string | null;
  running_s: number;
  note: string;
  tags: string[];
  priority: number;
}

export interface RunningAttempt {
  number: number;
  attempt: number;
  status: string;
  agent: string;
  pid: number | null;
  devices: { uuid: string; share: number }[];
  step: number | null;
  value: number | string | null;
}

export interface ExperimentDetail extends Experiment {
  detail: string;
  queues: Record<string, number>;
  waits_for: string | null;
  chosen: Record<string, string>;
  left_out: string[];
  not_set: string[];
  running: RunningAttempt[];
  seed: number;
  search_space: Values;
  tuner: Values | null;
  assessor: Values | null;
  advisor: Values | null;
  trial: Values;
  deterministic: boolean;
  algorithm_timeout: number;
  workers: number;
  warm_start: string[];
  quota_group: string;
}

export interface Trial {
  number: number;
  id: string;
  status: string;
  reason: string;
  message: string;
  parameters: Values;
  source: string;
  final: Record<string, number | string>;
  value: number | string | null;
  last: { step: number | null; metrics: Record<string, number | string> } | null;
  attempts: number;
  retry_of: number | null;
  forked_from: number | null;
  until_step: number | null;
  created_at: string;
  started_at: string | null;
  ended_at: string | null;
  running_s: number;
}

export interface Attempt {
  attempt: number;
  status: string;
  message: string;
  agent: string;
  pid: number | null;
  restored_step: number | null;
  devices: { uuid: string; share: number }[];
  peak_gpu_bytes: number | null;
  created_at: string;
  started_at: string | null;
  ended_at: string | null;
  exit: {
    cause: string;
    code: number | null;
    signal: number | null;
    stop_reason: string | null;
    peak_memory_bytes: number | null;
    memory_limit_bytes: number | null;
    processor_s: number | null;
    isolation: string;
    why_spawned: string;
    tail: string;
  } | null;
}

export interface TrialDetail extends Trial {
  first_parameters: Values;
  further_parameters: Values[];
  attempt_details: Attempt[];
  command: string[];
}

export interface Page<Item> {
  items: Item[];
  next: string | null;
}

export interface JournalLine {
  line: number;
  at: string;
  kind: string;
  queues: string[];
  payload: Values;
}

export interface Metric {
  attempt: number;
  step: number | null;
  values: Record<string, number | string>;
  sequence: number;
  first: boolean;
  at: string;
}

export interface Checkpoint {
  attempt: number;
  step: number;
  name: string;
  digest: string;
  size: number;
  inline: boolean;
  location: string;
  value: number | string | null;
  stall_s: number | null;
  write_s: number | null;
  damaged: boolean;
  at: string;
}

export interface Curve {
  number: number;
  status: string;
  steps: number[];
  values: (number | string)[];
}

export interface Curves {
  metric: string;
  curves: Curve[];
  left_out: number;
}

export interface Outlook {
  trials: number;
  since_improvement: number;
  chance_of_improvement: number;
  message: string;
}

export interface BestAnswer {
  best: { number: number; value: number; values: number[]; parameters: Values } | null;
  history: { numbers: number[]; values: (number | string)[] };
  outlook: Outlook | null;
}

export interface Importance {
  metric: string;
  importance: Record<string, number>;
  trials: number;
  message: string;
}

export interface Pareto {
  objectives: Objective[];
  front: { number: number; values: (number | string)[]; parameters: Values }[];
  others: { number: number; values: (number | string)[] }[];
  left_out: number;
  reference: (number | string)[];
  hypervolume: number | null;
}

export interface SpaceRevision {
  revision: number;
  line: number;
  at: string;
  search_space: Values;
}

export interface Device {
  id: string;
  uuid: string;
  name: string;
  agent: string;
  memory_bytes: number;
  state: string;
  share: number;
  trials: { id: string; share: number }[];
}

export interface Agent {
  id: string;
  host: string;
  pid: number;
  cpus: number;
  memory_bytes: number;
}

export interface QuotaGroup {
  name: string;
  gpus: number | null;
  borrows: boolean;
  used: number;
  experiments: string[];
}

export interface AlgorithmOption {
  name: string;
  default: Json;
  meaning: string;
}

export interface Algorithm {
  name: string;
  meaning: string;
  options: AlgorithmOption[];
}

export interface Algorithms {
  tuners: Algorithm[];
  assessors: Algorithm[];
  advisors: Algorithm[];
}

export function objectives(experiment: Pick<Experiment, "objective">): Objective[] {
  return Array.isArray(experiment.objective) ? experiment.objective : [experiment.objective];
}

export function ended(status: string): boolean {
  return status === "stopped" || status === "completed" || status === "failed";
}

/** Words of a column by their place among `words`, -1 where there is none. */
export interface Words {
  words: string[];
  codes: number[];
}

export interface Timeline {
  lanes: { agent: string; kind: string; name: string }[];
  columns: {
    number: number[];
    attempt: number[];
    status: Words;
    lane: number[];
    share: number[];
    start_s: (number | null)[];
    end_s: (number | null)[];
  };
  now_s: number;
  left_out: boolean;
}
