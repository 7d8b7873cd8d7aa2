import { doublePrecision, integer, pgTable, text } from "drizzle-orm/pg-core";
import { instant } from "./columns.ts";

/** Whose jobs and workloads are kept apart from those of others, and share quotas. */
export const projects = pgTable("projects", {
  name: text("name").primaryKey(),
  description: text("description").notNull().default(""),
  /** GPUs that its jobs hold at once at most; null: no limit. */
  maxGpus: integer("max_gpus"),
  /** GPU-hours that its jobs may use in a calendar month, UTC; null: no limit. */
  gpuHoursPerMonth: doublePrecision("gpu_hours_per_month"),
  createdAt: instant("created_at").notNull().defaultNow(),
});
