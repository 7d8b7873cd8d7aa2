import { appendJobEvents, type Transaction } from "@internevo/store";
import { logError, type Logger } from "@internevo/service-kit";
import { JobFeed } from "./job-feed.ts";

/** The feed of a job's stage, written by whoever holds the stage's lease. */
export const stageFeed = (context: {
  readonly data: { readonly jobId: string };
  readonly log: Logger;
  readonly fenced: <R>(work: (tx: Transaction) => Promise<R>) => Promise<R>;
}): JobFeed =>
  new JobFeed({
    append: (events) => context.fenced((tx) => appendJobEvents(tx, context.data.jobId, events)),
    onError: (error) => logError(context.log, error, "the job's log could not be written any more"),
  });
