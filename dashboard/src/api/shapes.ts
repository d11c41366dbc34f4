// The answers of the API as the page reads them: generated from its schema, so that a change of it is a fault of types.
import type { components } from "./schema";

type Schemas = components["schemas"];

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type Values = Record<string, Json>;
/** Parameters and search spaces are anybody's JSON; the schema says no more of them. */
type With<Shape, Known> = Omit<Shape, keyof Known> & Known;

export type Objective = Schemas["Objective"];
export type Budget = Schemas["Budget"];
export type Experiment = With<Schemas["Experiment"], { best: Best | null; counts: Record<string, number> }>;
export type ExperimentBody = Schemas["ExperimentBody"];
export type Best = With<Schemas["Best"], { parameters?: Values | null }>;
export type ExperimentDetail = With<
  Schemas["ExperimentDetail"],
  {
    best: Best | null;
    counts: Record<string, number>;
    search_space: Values;
    tuner: Values | null;
    assessor: Values | null;
    advisor: Values | null;
    chosen: Record<string, string>;
  }
>;
export type Trial = With<Schemas["Trial"], { parameters: Values }>;
export type TrialDetail = With<
  Schemas["TrialDetail"],
  { parameters: Values; first_parameters: Values; further_parameters: Values[] }
>;
export type Attempt = Schemas["Attempt"];
export type TrialReason = Schemas["TrialReason"];
export type ExperimentReason = Schemas["ExperimentReason"];
export type JournalLine = With<Schemas["JournalLine"], { payload: Values }>;
export type Metric = Schemas["Metric"];
export type Checkpoint = Schemas["Checkpoint"];
export type Curve = Schemas["Curve"];
export type Curves = Schemas["LearningCurves"];
export type BestAnswer = Schemas["BestOf"];
export type Importance = With<Schemas["ImportanceShares"], { importance: Record<string, number> }>;
export type Pareto = Schemas["Pareto"];
export type SpaceRevision = With<Schemas["SearchSpaceRevision"], { search_space: Values }>;
export type Device = Schemas["Device"];
export type Agent = Schemas["Agent"];
export type Executor = Schemas["Executor"];
export type NodeOfAttempt = Schemas["NodeOfAttempt"];
export type Exit = Schemas["Exit"];
export type ResourceSample = Schemas["ResourceSample"];
export type Resources = Schemas["Resources"];
export type ListedToken = Schemas["ListedToken"];
export type NewToken = Schemas["NewToken"];
export type BrowserSession = Schemas["Session"];
export type Caller = Schemas["Caller"];
export type TrialFiles = Schemas["TrialFiles"];
export type Readiness = Schemas["Readiness"];
export type QuotaGroup = Schemas["QuotaGroup"];
export type Algorithm = With<
  Schemas["KnownAlgorithm"],
  { options: With<Schemas["KnownAlgorithm"]["options"][number], { default: Json }>[] }
>;
export type Algorithms = { tuners: Algorithm[]; assessors: Algorithm[]; advisors: Algorithm[] };
export type DryRun = Schemas["DryRun"];
export type Timeline = Schemas["Timeline"];

export interface Page<Item> {
  items: Item[];
  next: string | null;
}

/** What `values` has by itself: every object of a browser has a `constructor`, and people may name a parameter so. */
export function own<Value>(values: Readonly<Record<string, Value>>, name: string): Value | undefined {
  return Object.hasOwn(values, name) ? values[name] : undefined;
}

export function objectives(experiment: { objective: Objective | Objective[] }): Objective[] {
  return Array.isArray(experiment.objective) ? experiment.objective : [experiment.objective];
}

export function ended(status: string): boolean {
  return status === "stopped" || status === "completed" || status === "failed";
}
