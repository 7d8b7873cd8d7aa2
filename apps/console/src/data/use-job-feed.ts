import { ApiProblemError } from "@internevo/client";
import type { JobDetail, JobStreamEvent } from "@internevo/contracts";
import type { JobState, Trial } from "@internevo/domain";
import { useQueryClient, type QueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { useSession } from "../session/session.tsx";
import { reportUnreachable } from "./connection.ts";
import { EMPTY_FEED, extendFeed, feedOf, withTrial, type JobFeed } from "./job-feed.ts";
import { isActive, jobKey, readJobHistory } from "./queries.ts";

/** Events that come together are shown together. */
const BATCH_MILLISECONDS = 120;

function updateCache(queries: QueryClient, jobId: string, events: readonly JobStreamEvent[]): void {
  const trials = events
    .filter(({ type }) => type === "trial")
    .map(({ data }) => data["trial"] as Trial | undefined);
  if (trials.length > 0) {
    queries.setQueryData<JobDetail>(
      jobKey(jobId),
      (job) => job && trials.reduce((at, trial) => (trial ? withTrial(at, trial) : at), job),
    );
  }
  const job = queries.getQueryData<JobDetail>(jobKey(jobId));
  // Events from before the answer at hand are known to it already.
  const news = events.some(
    ({ type, at }) =>
      (type === "state" || type === "report" || type === "trial") && (!job || at >= job.updatedAt),
  );
  if (news) void queries.invalidateQueries({ queryKey: jobKey(jobId) });
}

/**
 * Follows a job: new trials and states go into the job's query, the rest is returned. The stream of a job ends
 * with it; a job that somebody let go on is followed again.
 * @param state of the job, as the query knows it.
 */
export function useJobFeed(jobId: string, state: JobState | undefined): JobFeed {
  const { client } = useSession();
  const queries = useQueryClient();
  const [feed, setFeed] = useState(EMPTY_FEED);
  const [follows, setFollows] = useState(0);

  const goesOn = feed.ended && state !== undefined && isActive(state);
  useEffect(() => {
    if (goesOn) setFollows((times) => times + 1);
  }, [goesOn]);

  useEffect(() => {
    setFeed((at) => (follows === 0 ? EMPTY_FEED : { ...at, ended: false }));
    const abort = new AbortController();
    let batch: JobStreamEvent[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const flush = (): void => {
      timer = undefined;
      const events = batch;
      batch = [];
      setFeed((at) => extendFeed(at, events));
      updateCache(queries, jobId, events);
    };
    const follow = async (): Promise<void> => {
      try {
        const { job, ...history } = await queries.fetchQuery({
          queryKey: ["job-history", jobId],
          queryFn: ({ signal }) => readJobHistory(client, jobId, signal),
          staleTime: 0,
          gcTime: 0,
        });
        if (abort.signal.aborted) return;
        queries.setQueryData<JobDetail>(jobKey(jobId), (known) =>
          known && known.version > job.version ? known : job,
        );
        setFeed(feedOf(history));
        for await (const event of client.jobEvents(jobId, {
          lastEventId: history.lastEventId,
          signal: abort.signal,
          onReconnect: reportUnreachable,
        })) {
          batch.push(event);
          timer ??= setTimeout(flush, BATCH_MILLISECONDS);
        }
        // The query first: by its state it is told whether the job goes on.
        await queries.invalidateQueries({ queryKey: jobKey(jobId) });
        if (!abort.signal.aborted) setFeed((at) => ({ ...at, ended: true }));
      } catch (error) {
        // A refusal (no such job, no right to see it) is shown by the job's own query.
        if (!abort.signal.aborted && !(error instanceof ApiProblemError))
          console.error("the job's events ended", error);
      }
    };
    void follow();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [client, jobId, queries, follows]);

  return feed;
}
