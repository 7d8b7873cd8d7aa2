import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import type { TrainerConfig } from "@internevo/contracts";
import type { Timeline } from "@internevo/domain";
import { timelinePath } from "./directories.ts";

/**
 * What the trainer is told of a timeline that a job asks for; undefined where it asks for none. The directory
 * is made.
 */
export async function recordTimeline(
  dataDirectory: string,
  jobId: string,
  of: string,
  timeline: Timeline | undefined,
): Promise<TrainerConfig["timeline"]> {
  if (!timeline) return undefined;
  const path = timelinePath(dataDirectory, jobId, of);
  await mkdir(dirname(path), { recursive: true });
  return { path, ...timeline };
}
