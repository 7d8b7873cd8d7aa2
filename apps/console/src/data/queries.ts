import { allPages, ApiConnectionError, ApiProblemError, type InternEvoClient } from "@internevo/client";
import { COMPARED_JOBS } from "@internevo/contracts";
import type { AuditFilter, JobDetail, JobFilter, UsageQuery } from "@internevo/contracts";
import { keepPreviousData, QueryClient, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import {
  isAtRest,
  isTerminal,
  type JobState,
  type StepMetric,
  type ValidationLoss,
  type WorkloadSummary,
} from "@internevo/domain";
import { useSession } from "../session/session.tsx";
import { LOG_LINES, type JobHistory, type LogLine } from "./job-feed.ts";

/**
 * A lost connection is tried again until it is back; a refusal is an answer, and a server's fault is asked
 * about twice more.
 */
function mayRetry(failures: number, error: Error): boolean {
  if (error instanceof ApiConnectionError) return true;
  if (error instanceof ApiProblemError)
    return error.status === 429 || error.status === 503 ? true : error.status >= 500 && failures < 2;
  return failures < 2;
}

const retryDelay = (failures: number, error: Error): number =>
  error instanceof ApiProblemError && error.retryAfterSeconds !== undefined
    ? error.retryAfterSeconds * 1000
    : Math.min(4000, 500 * 2 ** failures);

export const createQueryClient = (): QueryClient =>
  new QueryClient({
    defaultOptions: {
      // The API may well be on this machine, which the browser calls offline when it has no network.
      queries: { networkMode: "always", retry: mayRetry, retryDelay, staleTime: 2000 },
      mutations: { networkMode: "always", retry: false },
    },
  });

/** Whether somebody works on a job, or will. */
export const isActive = (state: JobState): boolean => !isAtRest(state);

const POLL_MILLISECONDS = 4000;

export function useJobs(filter: JobFilter) {
  const { client } = useSession();
  return useInfiniteQuery({
    queryKey: ["jobs", filter],
    placeholderData: keepPreviousData,
    queryFn: ({ pageParam, signal }) =>
      client.listJobs({ limit: 25, signal, ...filter, ...(pageParam === null ? {} : { cursor: pageParam }) }),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.nextCursor,
    refetchInterval: POLL_MILLISECONDS,
  });
}

export const jobKey = (id: string) => ["job", id] as const;

export function useJob(id: string) {
  const { client } = useSession();
  return useQuery({
    queryKey: jobKey(id),
    queryFn: ({ signal }) => client.getJob(id, { signal }),
    // Events bring changes at once; this catches what has no event of its own, an attempt's restart for
    // example, or that somebody else let a held job go on.
    refetchInterval: (query) =>
      query.state.data && !isTerminal(query.state.data.state) ? 3 * POLL_MILLISECONDS : false,
  });
}

/** The file of a job, which stays as it is. */
export function useJobFile(id: string) {
  const { client } = useSession();
  return useQuery({
    queryKey: ["job-file", id],
    queryFn: ({ signal }) => client.jobFile(id, { signal }),
    staleTime: Infinity,
  });
}

/** How jobs differ; asked anew while any of them is at work. */
export function useComparison(ids: readonly string[]) {
  const { client } = useSession();
  return useQuery({
    queryKey: ["comparison", ids],
    queryFn: ({ signal }) => client.compareJobs(ids, { signal }),
    enabled: ids.length >= COMPARED_JOBS.least,
    placeholderData: keepPreviousData,
    refetchInterval: (query) =>
      query.state.data?.jobs.some(({ state }) => isActive(state)) ? 3 * POLL_MILLISECONDS : false,
  });
}

/** What a job leaves; looked at anew while it is at work. */
export function useArtifacts(id: string, isAtWork: boolean) {
  const { client } = useSession();
  return useQuery({
    queryKey: ["artifacts", id],
    queryFn: ({ signal }) => client.listArtifacts(id, { signal }),
    refetchInterval: isAtWork ? 5 * POLL_MILLISECONDS : false,
  });
}

const STEPS_A_PAGE = 1000;
const LINES_A_PAGE = 200;

/**
 * Reads what is stored of a job: the record first, so that a stream from its newest event on leaves nothing
 * out.
 */
export async function readJobHistory(
  client: InternEvoClient,
  id: string,
  signal: AbortSignal,
): Promise<JobHistory & { readonly job: JobDetail }> {
  const job = await client.getJob(id, { signal });
  const steps: StepMetric[] = [];
  if (job.lastStep > 0)
    for await (const step of allPages((cursor) =>
      client.jobMetrics(id, { limit: STEPS_A_PAGE, signal, ...(cursor === undefined ? {} : { cursor }) }),
    ))
      steps.push(step);
  const validations: ValidationLoss[] = [];
  if (job.lastValidation)
    for await (const loss of allPages((cursor) =>
      client.jobValidations(id, { limit: STEPS_A_PAGE, signal, ...(cursor === undefined ? {} : { cursor }) }),
    ))
      validations.push(loss);
  const log: LogLine[] = [];
  for await (const line of allPages((cursor) =>
    client.jobLog(id, { limit: LINES_A_PAGE, signal, ...(cursor === undefined ? {} : { cursor }) }),
  )) {
    log.push(line);
    if (log.length >= LOG_LINES) break;
  }
  return {
    job,
    lastEventId: job.lastEventId,
    progress: job.progress ?? undefined,
    steps,
    validations,
    log: log.reverse(),
  };
}

export function useClusters() {
  const { client } = useSession();
  return useQuery({
    queryKey: ["clusters"],
    queryFn: ({ signal }) => client.listClusters({ signal }),
    refetchInterval: POLL_MILLISECONDS,
  });
}

export function useRetention() {
  const { client } = useSession();
  return useQuery({
    queryKey: ["retention"],
    queryFn: ({ signal }) => client.retention.show({ signal }),
    refetchInterval: POLL_MILLISECONDS,
  });
}

export function useProjects() {
  const { client } = useSession();
  return useQuery({
    queryKey: ["projects"],
    queryFn: ({ signal }) => client.listProjects({ signal }),
    refetchInterval: 2 * POLL_MILLISECONDS,
  });
}

export function useUsage(asked: UsageQuery) {
  const { client } = useSession();
  return useQuery({
    queryKey: ["usage", asked],
    placeholderData: keepPreviousData,
    queryFn: ({ signal }) => client.usage(asked, { signal }),
    refetchInterval: 5 * POLL_MILLISECONDS,
  });
}

export function useProfiles() {
  const { client } = useSession();
  return useInfiniteQuery({
    queryKey: ["profiles"],
    queryFn: ({ pageParam, signal }) =>
      client.listProfiles({ limit: 50, signal, ...(pageParam === null ? {} : { cursor: pageParam }) }),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.nextCursor,
    refetchInterval: 5 * POLL_MILLISECONDS,
  });
}

/** They are the same as long as the product is. */
export function useGivenProfiles() {
  const { client } = useSession();
  return useQuery({
    queryKey: ["given-profiles"],
    queryFn: ({ signal }) => client.listGivenProfiles({ signal }),
    staleTime: Infinity,
  });
}

export function useProfile(id: string) {
  const { client } = useSession();
  return useQuery({
    queryKey: ["profile", id],
    queryFn: ({ signal }) => client.getProfile(id, { signal }),
    staleTime: 60_000,
  });
}

/** A run was asked for and has not ended. */
export const isBeingPlanned = ({ lastRunAt, lastOutcome }: WorkloadSummary): boolean =>
  lastRunAt !== null && lastOutcome === null;

export function useWorkloads() {
  const { client } = useSession();
  return useInfiniteQuery({
    queryKey: ["workloads"],
    queryFn: ({ pageParam, signal }) =>
      client.listWorkloads({ limit: 50, signal, ...(pageParam === null ? {} : { cursor: pageParam }) }),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.nextCursor,
    refetchInterval: POLL_MILLISECONDS,
  });
}

export function useWorkload(id: string) {
  const { client } = useSession();
  return useQuery({
    queryKey: ["workload", id],
    queryFn: ({ signal }) => client.getWorkload(id, { signal }),
    refetchInterval: POLL_MILLISECONDS,
  });
}

export function useProposals(workloadId: string) {
  const { client } = useSession();
  return useInfiniteQuery({
    queryKey: ["proposals", workloadId],
    queryFn: ({ pageParam, signal }) =>
      client.listProposals(workloadId, {
        limit: 25,
        signal,
        ...(pageParam === null ? {} : { cursor: pageParam }),
      }),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.nextCursor,
    refetchInterval: POLL_MILLISECONDS,
  });
}

export function useTokens() {
  const { client } = useSession();
  return useInfiniteQuery({
    queryKey: ["tokens"],
    queryFn: ({ pageParam, signal }) =>
      client.listTokens({ limit: 50, signal, ...(pageParam === null ? {} : { cursor: pageParam }) }),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.nextCursor,
    refetchInterval: 5 * POLL_MILLISECONDS,
  });
}

export function useWebhooks() {
  const { client } = useSession();
  return useInfiniteQuery({
    queryKey: ["webhooks"],
    queryFn: ({ pageParam, signal }) =>
      client.listWebhooks({ limit: 50, signal, ...(pageParam === null ? {} : { cursor: pageParam }) }),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.nextCursor,
    refetchInterval: POLL_MILLISECONDS,
  });
}

export function useWebhook(id: string) {
  const { client } = useSession();
  return useQuery({
    queryKey: ["webhooks", id],
    queryFn: ({ signal }) => client.getWebhook(id, { signal }),
    refetchInterval: POLL_MILLISECONDS,
  });
}

export function useDeliveries(id: string) {
  const { client } = useSession();
  return useInfiniteQuery({
    queryKey: ["webhooks", id, "deliveries"],
    queryFn: ({ pageParam, signal }) =>
      client.listDeliveries(id, { limit: 50, signal, ...(pageParam === null ? {} : { cursor: pageParam }) }),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.nextCursor,
    refetchInterval: POLL_MILLISECONDS,
  });
}

export function useAudit(filter: AuditFilter) {
  const { client } = useSession();
  return useInfiniteQuery({
    queryKey: ["audit", filter],
    placeholderData: keepPreviousData,
    queryFn: ({ pageParam, signal }) =>
      client.listAudit({
        limit: 50,
        signal,
        ...filter,
        ...(pageParam === null ? {} : { cursor: pageParam }),
      }),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.nextCursor,
    refetchInterval: 2 * POLL_MILLISECONDS,
  });
}

export function useDeadLetters() {
  const { client } = useSession();
  return useInfiniteQuery({
    queryKey: ["dead-letters"],
    queryFn: ({ pageParam, signal }) =>
      client.listDeadLetters({ limit: 25, signal, ...(pageParam === null ? {} : { cursor: pageParam }) }),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.nextCursor,
    refetchInterval: 2 * POLL_MILLISECONDS,
  });
}
