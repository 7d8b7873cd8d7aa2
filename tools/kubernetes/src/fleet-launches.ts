// Follows many launches at once in a process of its own, as a supervisor does, for whoever has forked it: what it is
// told are orders, and what it tells are reports.
// usage: node --expose-gc fleet-launches.ts, forked
import { subscribe } from "node:diagnostics_channel";
import { setTimeout as sleep } from "node:timers/promises";
import { launchRanks, launchTarget, type LaunchOutcome } from "@internevo/launcher";
import { Type } from "typebox";

export interface LaunchOrder {
  readonly kind: "launch";
  readonly name: string;
  readonly cluster: string;
  readonly clustersFile: string;
  readonly nodes: number;
  readonly gpusPerNode: number;
  readonly program: string;
  readonly runDirectory: string;
}
export type Order =
  LaunchOrder | { readonly kind: "cancel"; readonly name: string } | { readonly kind: "measure" };

/** What the process has needed since it began. */
export interface Measured {
  readonly heapBytes: number;
  readonly residentBytes: number;
  readonly cpuSeconds: number;
  /** Questions to API servers, by method and what they are for. */
  readonly requests: Readonly<Record<string, number>>;
}
export type Report =
  | { readonly kind: "said"; readonly name: string; readonly message: string }
  | { readonly kind: "ended"; readonly name: string; readonly outcome: LaunchOutcome }
  | { readonly kind: "thrown"; readonly name: string; readonly message: string }
  | { readonly kind: "measured"; readonly measured: Measured };

const tell = (report: Report): void => void process.send?.(report);
const requests: Record<string, number> = {};
const cancels = new Map<string, AbortController>();

/** The kind of objects, and whether one, all or changes of them were asked for. */
function purposeOf(method: string, path: string): string {
  const { pathname, searchParams } = new URL(path, "https://api");
  const [, plural = pathname, name] =
    /^\/apis?(?:\/[^/]+)?\/v[^/]+(?:\/namespaces\/[^/]+)?\/([^/]+)(?:\/([^/]+))?$/.exec(pathname) ?? [];
  if (method !== "GET") return `${method} ${plural}`;
  if (searchParams.has("watch")) return `watch ${plural}`;
  return name === undefined ? `list ${plural}` : `get ${plural}`;
}

subscribe("http.client.request.start", (message) => {
  const { request } = message as { readonly request: { readonly method: string; readonly path: string } };
  const purpose = purposeOf(request.method, request.path);
  requests[purpose] = (requests[purpose] ?? 0) + 1;
});

async function launch(order: LaunchOrder): Promise<void> {
  const { name, cluster, clustersFile, nodes, gpusPerNode, program, runDirectory } = order;
  const cancel = new AbortController();
  cancels.set(name, cancel);
  try {
    const target = await launchTarget(
      { name: cluster, launcher: "kubernetes", nodes, gpusPerNode },
      clustersFile,
    );
    const outcome = await launchRanks({
      program: { name: "program", path: program, configSchema: Type.Any(), eventSchema: Type.Any() },
      config: { job: name },
      ...target,
      ranks: nodes * gpusPerNode,
      threadsPerRank: 1,
      label: name,
      runDirectory,
      signal: cancel.signal,
      onEvent: () => {},
      onQueue: (message) => tell({ kind: "said", name, message }),
    });
    tell({ kind: "ended", name, outcome });
  } catch (error) {
    tell({ kind: "thrown", name, message: (error as Error).message });
  }
}

async function measure(): Promise<void> {
  globalThis.gc?.();
  await sleep(0);
  globalThis.gc?.();
  const { heapUsed, rss } = process.memoryUsage();
  const { user, system } = process.cpuUsage();
  tell({
    kind: "measured",
    measured: {
      heapBytes: heapUsed,
      residentBytes: rss,
      cpuSeconds: (user + system) / 1e6,
      requests: { ...requests },
    },
  });
}

process.on("message", (order: Order) => {
  if (order.kind === "launch") void launch(order);
  else if (order.kind === "cancel") cancels.get(order.name)?.abort();
  else void measure();
});
process.on("disconnect", () => process.exit());
