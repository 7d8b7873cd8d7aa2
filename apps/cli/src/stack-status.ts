import { resolve } from "node:path";
import type { StackInfo } from "@internevo/local-stack";

/** How one process of the stack is: what it says itself, or, where it has no health page, whether it runs. */
export interface ServiceStatus {
  readonly name: string;
  readonly pid: number | null;
  readonly healthy: boolean;
  /** "ready", "running", "not running", "not ready: bus", "does not answer". */
  readonly state: string;
}

export interface StackStatus {
  readonly dataDirectory: string;
  /** Undefined: no stack runs there. */
  readonly info: StackInfo | undefined;
  readonly services: readonly ServiceStatus[];
}

/** A service that is asked for its health answers within this time, or it does not. */
const HEALTH_MILLISECONDS = 3000;

async function serviceStatus(
  name: string,
  { pid, healthUrl }: StackInfo["processes"][string],
  signal: AbortSignal,
): Promise<ServiceStatus> {
  const status = (healthy: boolean, state: string): ServiceStatus => ({ name, pid, healthy, state });
  if (pid === null) return status(false, "not running");
  if (healthUrl === null) return status(true, "running");
  try {
    const answer = await fetch(`${healthUrl}/readyz`, {
      signal: AbortSignal.any([signal, AbortSignal.timeout(HEALTH_MILLISECONDS)]),
    });
    const { ready, checks } = (await answer.json()) as { ready: boolean; checks: Record<string, boolean> };
    const lacking = Object.keys(checks).filter((check) => checks[check] !== true);
    return ready ? status(true, "ready") : status(false, `not ready: ${lacking.join(", ")}`);
  } catch (error) {
    signal.throwIfAborted();
    // Whatever the reason is, it is in the service's log.
    if (error instanceof Error) return status(false, "does not answer");
    throw error;
  }
}

/** What runs in a data directory now. @throws the signal's reason */
export async function stackStatus(directory: string, signal: AbortSignal): Promise<StackStatus> {
  const { readStackInfo } = await import("@internevo/local-stack");
  const dataDirectory = resolve(directory);
  const info = readStackInfo(dataDirectory);
  if (info === undefined) return { dataDirectory, info, services: [] };
  return {
    dataDirectory,
    info,
    services: await Promise.all(
      Object.entries(info.processes).map(([name, process]) => serviceStatus(name, process, signal)),
    ),
  };
}
