import { Type, type Static } from "typebox";

/**
 * How memory is predicted: the trainer's own plan of it, the paper's text, or the planner that the paper's
 * authors published.
 */
export const MEMORY_MODELS = ["executor", "paper", "published"] as const;
export const MemoryModelNameSchema = Type.Enum(MEMORY_MODELS, {
  description:
    "how memory is predicted: the trainer's own plan of it (executor), the paper's text, or the planner that its authors published",
});
export type MemoryModelName = Static<typeof MemoryModelNameSchema>;

/**
 * How time is predicted: as our executor's steps go on the profile, as the paper's text has it, or as the
 * published planner has it.
 */
export const TIME_MODELS = ["executor", "paper", "published"] as const;
export const TimeModelNameSchema = Type.Enum(TIME_MODELS, {
  description:
    "how time is predicted: as the executor's steps go (executor, the default), by the paper's text, or by the planner that its authors published",
});
export type TimeModelName = Static<typeof TimeModelNameSchema>;
