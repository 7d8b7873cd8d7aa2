import { schedulerOf, type Cluster } from "@internevo/domain";
import { WorkStoppedError } from "@internevo/service-kit";

/**
 * Whether the ranks of stopped work go on by themselves, for the next supervisor to find: work that a
 * scheduler runs and nobody has cancelled.
 */
export const goesOn = (cluster: Pick<Cluster, "launcher">, signal: AbortSignal): boolean =>
  schedulerOf(cluster) !== null &&
  signal.reason instanceof WorkStoppedError &&
  signal.reason.why !== "cancelled";

/** What a stage's signal means for its ranks: spread this into the options of a launch. */
export function launchSignals(
  cluster: Pick<Cluster, "launcher">,
  signal: AbortSignal,
): { readonly killSignal: AbortSignal; readonly detachSignal: AbortSignal } {
  const kill = new AbortController();
  const detach = new AbortController();
  const onAbort = (): void => (goesOn(cluster, signal) ? detach : kill).abort(signal.reason);
  if (signal.aborted) onAbort();
  else signal.addEventListener("abort", onAbort, { once: true });
  return { killSignal: kill.signal, detachSignal: detach.signal };
}
