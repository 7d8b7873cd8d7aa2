import { ProblemError } from "@internevo/domain";
import { noDeadLetter, noDelivery, noWebhook, type OwnedKind } from "@internevo/store";

const absent =
  (what: string, list: string) =>
  (id: string): ProblemError =>
    new ProblemError("not-found", `there is no ${what} ${id}`, [
      { field: "id", value: id, message: `names no ${what}`, remedy: `see GET /api/v1/${list}` },
    ]);

export const noJob = absent("job", "jobs");
export const noProfile = absent("profile", "profiles");
export const noWorkload = absent("workload", "workloads");

const noJobIn =
  (field: string) =>
  (id: string): ProblemError =>
    new ProblemError("not-found", `there is no job ${id}`, [
      { field, value: id, message: "names no job", remedy: "see GET /api/v1/jobs" },
    ]);
/** The job that a question in a body is about. */
export const noJobOfBody = noJobIn("jobId");
/** A job that a query names. */
export const noJobOfQuery = noJobIn("job");

/** What is answered for what is not there, and for what whoever asks may not see. */
export const noneOf: Readonly<Record<OwnedKind, (id: string) => ProblemError>> = {
  job: noJob,
  workload: noWorkload,
  token: absent("token", "tokens"),
  "dead-letter": noDeadLetter,
  profile: noProfile,
  webhook: noWebhook,
  "webhook-delivery": noDelivery,
};
