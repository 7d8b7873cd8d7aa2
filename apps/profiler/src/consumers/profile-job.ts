import { ProblemError } from "@internevo/domain";
import type { CommandContext, Effect } from "@internevo/service-kit";
import {
  endedByProblem,
  failedJob,
  heldJob,
  obtainProfile,
  stageFeed,
  type ObtainProfileOutcome,
  type ProfilingSettings,
} from "@internevo/stages";
import { transitionJob, updateJob, type Database } from "@internevo/store";

/** Measures the job's cluster, or finds a profile that need not be measured again. */
export const profileJob =
  (settings: ProfilingSettings, database: Database) =>
  async (context: CommandContext<"job.profile">): Promise<Effect> => {
    const { job, log } = context;
    // Points that were measured are kept, however the measuring ends.
    const signal = AbortSignal.any([context.signal, context.giveWay]);
    const feed = stageFeed(context);
    let outcome: ObtainProfileOutcome;
    try {
      outcome = await obtainProfile({
        settings,
        database,
        spec: job.spec,
        asker: { jobId: job.id },
        signal,
        claimHosts: (hosts) => context.claimHosts(hosts),
        confirm: () => context.confirm(),
        onProgress: (message, done, total, waits) => feed.progress("profiling", message, done, total, waits),
        onLog: (line) => feed.log("warn", "internevo-probe", line),
        onDetails: (message) => log.info(message),
      });
    } catch (error) {
      if (!(error instanceof ProblemError)) throw error;
      log.warn({ code: error.code, details: error.details }, error.message);
      return endedByProblem(job.id, "profiling", error);
    } finally {
      await feed.close();
    }
    if (outcome.status === "lost") {
      log.warn({ failure: outcome.failure }, "the cluster was not measured: ranks were lost again and again");
      return heldJob(job.id, "profiling", outcome.failure);
    }
    if (outcome.status === "failed") {
      log.warn({ failure: outcome.failure }, "the cluster has no profile");
      return failedJob(job.id, "profiling", outcome.failure);
    }
    const { how, profile, persist } = outcome;
    log.info({ how, profile: profile.name }, "the cluster has a profile");
    return async (tx) => {
      await updateJob(tx, job.id, { profileId: await persist(tx) });
      await transitionJob(tx, {
        jobId: job.id,
        from: "profiling",
        to: job.spec.until === "profiling" ? "succeeded" : "planning",
        reason: how === "measured" ? "measured the cluster" : `used profile ${profile.name}`,
      });
    };
  };
