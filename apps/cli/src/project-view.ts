import type { ProjectRecord, Usage, UsageGroup } from "@internevo/contracts";
import { formatGpuHours, formatInteger, formatWeight } from "@internevo/domain";
import { table, type Colors } from "./output.ts";

const NONE = "–";

/** `6 of 8`, or `6` without a limit. */
const ofLimit = (used: string, limit: string | undefined): string =>
  limit === undefined ? used : `${used} of ${limit}`;

export const projectsTable = (projects: readonly ProjectRecord[], colors: Colors): string =>
  table<ProjectRecord>(
    [
      { title: "NAME", value: ({ name }) => name },
      {
        title: "GPUS IN USE",
        align: "right",
        value: ({ gpusInUse, maxGpus }) =>
          ofLimit(formatInteger(gpusInUse), maxGpus === null ? undefined : formatInteger(maxGpus)),
      },
      {
        title: "GPU-HOURS THIS MONTH",
        align: "right",
        value: ({ gpuHoursThisMonth, gpuHoursPerMonth }) =>
          ofLimit(
            formatGpuHours(gpuHoursThisMonth),
            gpuHoursPerMonth === null ? undefined : formatGpuHours(gpuHoursPerMonth),
          ),
      },
      { title: "WEIGHT", align: "right", value: ({ weight }) => formatWeight(weight) },
      { title: "DESCRIPTION", spare: 1, value: ({ description }) => description || NONE },
    ],
    projects,
    colors,
  );

/** What a key that is null stands for. */
export const NOBODY = "(scheduled work)";
const TITLES: Readonly<Record<UsageGroup, string>> = {
  project: "PROJECT",
  owner: "OWNER",
  cluster: "CLUSTER",
  day: "DAY (UTC)",
};
const BAR_WIDTH = 30;

/** Rows with a bar each, as long as their share of the largest. */
export function usageTable({ by, rows }: Usage, colors: Colors): string {
  const most = Math.max(...rows.map(({ gpuHours }) => gpuHours), Number.MIN_VALUE);
  return table<Usage["rows"][number]>(
    [
      { title: TITLES[by], value: ({ key }) => key ?? NOBODY },
      { title: "GPU-HOURS", align: "right", value: ({ gpuHours }) => formatGpuHours(gpuHours) },
      { title: "JOBS", align: "right", value: ({ jobs }) => formatInteger(jobs) },
      { title: "", spare: 1, value: ({ gpuHours }) => "█".repeat(Math.round((BAR_WIDTH * gpuHours) / most)) },
    ],
    rows,
    colors,
  );
}
