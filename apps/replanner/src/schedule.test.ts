import { describe, expect, it } from "vitest";
import { nextRunAt } from "./schedule.ts";

const next = (cron: string, timeZone: string, after: string) =>
  nextRunAt({ cron, timeZone }, new Date(after))?.toISOString();

describe("nextRunAt", () => {
  it("is the next time in the zone, never the instant itself", () => {
    expect(next("0 3 * * *", "UTC", "2026-01-01T02:59:59Z")).toBe("2026-01-01T03:00:00.000Z");
    expect(next("0 3 * * *", "UTC", "2026-01-01T03:00:00Z")).toBe("2026-01-02T03:00:00.000Z");
    expect(next("0 3 * * *", "Asia/Shanghai", "2026-01-01T00:00:00Z")).toBe("2026-01-01T19:00:00.000Z");
  });
  it("follows the clocks into summer time and back, once a night", () => {
    // Berlin skips 02:00 to 03:00 on 2026-03-29, and has 02:00 to 03:00 twice on 2026-10-25.
    const spring = next("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z");
    expect(spring?.startsWith("2026-03-29T01:")).toBe(true);
    const autumn = next("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z") as string;
    expect(autumn).toBe("2026-10-25T00:30:00.000Z");
    expect(next("30 2 * * *", "Europe/Berlin", autumn)).toBe("2026-10-26T01:30:00.000Z");
  });
  it("is null when there never is one", () => {
    expect(nextRunAt({ cron: "0 0 30 2 *", timeZone: "UTC" }, new Date("2026-01-01T00:00:00Z"))).toBeNull();
  });
});
