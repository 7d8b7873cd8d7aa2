import { formatInteger } from "./figures.ts";

/** The quotas of a project, null for none, and what it uses of them. */
export interface QuotaStanding {
  readonly name: string;
  readonly maxGpus: number | null;
  readonly gpusInUse: number;
  readonly gpuHoursPerMonth: number | null;
  readonly gpuHoursThisMonth: number;
}

/** Profiles that a project keeps, of those that its tokens gave and nobody discarded. */
export const MOST_GIVEN_PROFILES = 100;

/** Workloads that a project keeps, whether they are paused or not. */
export const MOST_WORKLOADS = 100;

/** Jobs of a project that have not ended. All that wait are put in order whenever one comes or goes. */
export const MOST_UNENDED_JOBS = 1000;

/** Tokens of a project that were neither revoked nor have run out. */
export const MOST_TOKENS = 1000;

/** GPU-hours in a few digits: `0.25`, `12.5`, `1,200`. */
export const formatGpuHours = (hours: number): string =>
  hours.toLocaleString("en-US", {
    maximumSignificantDigits: hours >= 100 ? Math.ceil(Math.log10(hours + 1)) : 3,
  });

/** Why a project's GPU-hours of the month let nothing of it begin; undefined where they do. */
export function hoursFault(project: QuotaStanding): string | undefined {
  const { name, gpuHoursPerMonth, gpuHoursThisMonth } = project;
  if (gpuHoursPerMonth === null || gpuHoursThisMonth < gpuHoursPerMonth) return undefined;
  return `project ${name} has used ${formatGpuHours(gpuHoursThisMonth)} of ${formatGpuHours(gpuHoursPerMonth)} GPU-hours of this month`;
}

/** Why a project may never use so many GPUs at once; undefined where it may. */
export const sizeFault = ({ name, maxGpus }: QuotaStanding, gpus: number): string | undefined =>
  maxGpus === null || gpus <= maxGpus
    ? undefined
    : `project ${name} may use ${formatInteger(maxGpus)} GPUs, and this needs ${formatInteger(gpus)}`;

/** Why a project may not use so many more GPUs now; undefined where it may. */
export function gpusFault({ name, maxGpus, gpusInUse }: QuotaStanding, gpus: number): string | undefined {
  if (maxGpus === null || gpusInUse + gpus <= maxGpus) return undefined;
  const uses = `project ${name} uses ${formatInteger(gpusInUse)} of ${formatInteger(maxGpus)} GPUs`;
  return gpusInUse >= maxGpus ? uses : `${uses}, and this needs ${formatInteger(gpus)}`;
}
