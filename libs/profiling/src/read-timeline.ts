import { readFile } from "node:fs/promises";
import { laneEventsOf, type LaneEvent, type MeasuredTrace } from "@internevo/domain";

/**
 * The events of every rank of a timeline that was measured, by their start. @throws Error when a rank had no
 * room for all of its events.
 */
export async function readTimeline(path: string): Promise<LaneEvent[][]> {
  try {
    return laneEventsOf(JSON.parse(await readFile(path, "utf8")) as MeasuredTrace);
  } catch (error) {
    throw new Error(`${path}: ${(error as Error).message}`, { cause: error });
  }
}
