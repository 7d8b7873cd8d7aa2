import type { InternEvoClient } from "@internevo/client";
import type { FrameworkName, PlanChoice } from "@internevo/contracts";
import { useQuery } from "@tanstack/react-query";
import { useSession } from "../session/session.tsx";

/** What questions are about: a submitted job, or a job file with the profile that was asked for. */
export interface Subject {
  readonly jobId?: string;
  readonly job?: unknown;
  readonly profile?: string;
  /** Memory of each GPU that plans leave free, as written. */
  readonly headroom?: string;
}

/** The same question of the same subject has the same answer: it is asked once. */
function useAnswer<T>(
  question: readonly unknown[],
  ask: (client: InternEvoClient, signal: AbortSignal) => Promise<T>,
  enabled = true,
) {
  const { client } = useSession();
  return useQuery({
    queryKey: ["advice", ...question],
    queryFn: ({ signal }) => ask(client, signal),
    enabled,
    staleTime: Infinity,
    gcTime: 300_000,
  });
}

export const useExplanation = (subject: Subject, a: PlanChoice, b: PlanChoice) =>
  useAnswer(["explain", subject, a, b], (client, signal) => client.explain({ ...subject, a, b }, { signal }));
export const useWhyNot = (subject: Subject, plan: PlanChoice) =>
  useAnswer(["why-not", subject, plan], (client, signal) => client.whyNot({ ...subject, plan }, { signal }));
export const usePlanMemory = (subject: Subject, plan: PlanChoice) =>
  useAnswer(["memory", subject, plan], (client, signal) =>
    client.planMemory({ ...subject, plan }, { signal }),
  );
export const useExport = (subject: Subject, plan: PlanChoice, framework: FrameworkName) =>
  useAnswer(["export", subject, plan, framework], (client, signal) =>
    client.exportPlan({ ...subject, plan, framework }, { signal }),
  );
