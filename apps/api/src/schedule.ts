import { formatCounted, ProblemError, type ProblemDetail } from "@internevo/domain";
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

const FIELDS = 5;

/**
 * What is wrong with a schedule, without the library's own name for it, and without the forms that are not
 * taken here.
 */
function faultOf(cron: string, error: Error): string {
  const fields = cron.trim().split(/\s+/).length;
  return fields === FIELDS
    ? error.message.replace(/^CronPattern: /, "")
    : `it has ${formatCounted(fields, "field")} and not ${FIELDS}`;
}

/**
 * The first time of a schedule after `after`.
 * @throws ProblemError `bad-request` when it is no schedule (five fields and an IANA time zone), or one that
 * never comes (30 February).
 */
export function firstRunAt(schedule: Schedule, after: Date): Date {
  const details: ProblemDetail[] = [];
  if (!isTimeZone(schedule.timeZone))
    details.push({
      field: "timeZone",
      value: schedule.timeZone,
      message: "is not a time zone",
      remedy: "use an IANA name, for example Europe/Berlin or UTC",
    });
  try {
    const cron = new Cron(schedule.cron, {
      mode: "5-part",
      paused: true,
      ...(details.length === 0 ? { timezone: schedule.timeZone } : {}),
    });
    const next = cron.nextRun(after);
    if (next === null)
      details.push({
        field: "cron",
        value: schedule.cron,
        message: "never comes: no month that it names has such a day",
        remedy: "name a day that the month has; for example `0 3 1 * *`",
      });
    else if (details.length === 0) return next;
  } catch (error) {
    details.push({
      field: "cron",
      value: schedule.cron,
      message: `is not a schedule: ${faultOf(schedule.cron, error as Error)}`,
      remedy: "use five fields: minute, hour, day of month, month, day of week; for example `0 3 * * *`",
    });
  }
  // What is wrong with each the details say.
  throw new ProblemError(
    "bad-request",
    `the schedule is not valid: ${details.map(({ field }) => field).join(", ")}`,
    details,
  );
}
