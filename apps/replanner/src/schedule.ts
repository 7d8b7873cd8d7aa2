import { Cron } from "croner";

/**
 * The next time of a cron line after an instant, in a time zone; null when there is none. In the hour that a
 * change to summer time skips, croner fires at the next valid time; the repeated hour fires once.
 */
export function nextRunAt(
  schedule: { readonly cron: string; readonly timeZone: string },
  after: Date,
): Date | null {
  return new Cron(schedule.cron, { timezone: schedule.timeZone, paused: true, mode: "5-part" }).nextRun(
    after,
  );
}
