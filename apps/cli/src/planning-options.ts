import { withFixed, withHeadroom, type Headroom, type JobSpec } from "@internevo/domain";
import type { Command } from "commander";
import { FIX, fixOption } from "./fixed-fields.ts";
import { HEADROOM, headroomOption } from "./headroom.ts";

/** What every command that searches plans can be told of them, beside the job. */
export interface PlanningOptions {
  /** Fields of plans, as written: `tp=8`. */
  readonly fix?: readonly string[] | undefined;
  /** Memory of each GPU that plans leave free. */
  readonly headroom?: Headroom | undefined;
}

export const addPlanningOptions = (command: Command): Command =>
  command.addOption(fixOption()).addOption(headroomOption());

/** Whether something of the job's search is changed. */
export const hasPlanningOptions = ({ fix, headroom }: PlanningOptions): boolean =>
  fix !== undefined || headroom !== undefined;

/**
 * The job whose plans are searched. @throws ProblemError `plan-invalid` for a `--fix` that no plan of it has;
 * `bad-request` for a headroom that leaves nothing
 */
export const searchedJob = (job: JobSpec, { fix = [], headroom }: PlanningOptions): JobSpec =>
  withHeadroom(withFixed(job, fix, FIX), headroom, HEADROOM);
