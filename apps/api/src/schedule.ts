import { ProblemError, type ProblemDetail } from "@internevo/domain";
import { Cron } from "croner";

/** A schedule as it is stored. */
export interface Schedule {
  readonly cron: string;
  readonly timeZone: string;
}

const isTimeZone = (name: string): boolean => {
  try {
    new Intl.DateTimeFormat("en", { timeZone: name });
    return true;
  } catch {
    return false;
  }
};

/**
 * The first time of a schedule after `after`.
 * @returns null when there is none (30 February).
 * @throws ProblemError `bad-request` when it is no schedule: five fields and an IANA time zone.
 */
export function firstRunAt(schedule: Schedule, after: Date): Date | null {
  const details: ProblemDetail[] = [];
  if (!isTimeZone(schedule.timeZone)) details.push({ field: "timeZone", value: schedule.timeZone, message: "is not a time zone", remedy: "use an IANA name, for example Europe/Berlin or UTC" });
  try {
    const cron = new Cron(schedule.cron, { mode: "5-part", paused: true, ...(details.length === 0 ? { timezone: schedule.timeZone } : {}) });
    if (details.length === 0) return cron.nextRun(after);
  } catch (error) {
    details.push({ field: "cron", value: schedule.cron, message: `is not a schedule: ${(error as Error).message}`, remedy: "use five fields: minute, hour, day of month, month, day of week; for example `0 3 * * *`" });
  }
  throw new ProblemError("bad-request", `the schedule is not valid: ${details[0]?.field} ${details[0]?.message}`, details);
}
