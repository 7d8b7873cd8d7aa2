import type { JobSpec } from "@internevo/domain";

/** Fields of a job whose own fields are decided one by one. */
type Nested = "model" | "optimizer" | "data" | "cluster" | "validation" | "checkpointing";

/** Names of the fields of an object, or of any member of a union. */
type NamesOf<Value> = Value extends unknown ? keyof Value & string : never;

/** Every field of a job; `data.packing` is one within another. */
export type JobField =
  | Exclude<keyof JobSpec, Nested>
  | { [Field in Nested]: `${Field}.${NamesOf<NonNullable<JobSpec[Field]>>}` }[Nested];

type Known<Field extends JobField> = Field;

/** Fields that say how a plan is searched, and for which machines. */
type OfPlanning = Known<
  | "documents"
  | "data.maxDocumentsPerSequence"
  | "cluster.memoryPerGpuBytes"
  | "cluster.hostMemoryBytes"
  | "cluster.profile"
  | "headroom"
  | "memoryModel"
  | "timeModel"
  | "trials"
  | "measureAgain"
  | "plan"
>;

/** Fields that say how the services queue, watch and record a job. */
type OfServices = Known<
  | "cluster.launcher"
  | "cluster.device"
  | "cluster.minNodes"
  | "timeline"
  | "watchdog"
  | "until"
  | "project"
  | "priority"
  | "preemptible"
  | "replanning"
  | "tracking"
  | "labels"
>;

/** Fields without which the same is trained in the same way: those above, and names. */
type NotOfTraining = OfPlanning | OfServices | Known<"name" | "model.name" | "cluster.name">;

/** Fields that training depends on: a framework's configuration says each of them, or the export names it. */
export type TrainingField = Exclude<JobField, NotOfTraining>;

/** Fields of a job that an export is made of, and its name. */
export type ExportedField = "name" | Exclude<keyof JobSpec, NotOfTraining>;
