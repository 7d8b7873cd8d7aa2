import { Type } from "typebox";
import { removeAbandonedDatasets } from "@internevo/data";
import type { ServiceDefinition } from "@internevo/service-kit";
import {
  DEFAULT_LOST_RANK_LIMIT,
  endLaunchesOfEndedJobs,
  nativeConfig,
  profilingConfig,
  profilingSettings,
  stagePlaces,
  trainingSettings,
} from "@internevo/stages";
import { train } from "./consumers/train.ts";

const ConfigSchema = Type.Object({
  ...nativeConfig,
  ...profilingConfig,
  INTERNEVO_EXECUTOR_SUPERVISOR_SILENCE_SECONDS: Type.Number({
    default: 1800,
    exclusiveMinimum: 0,
    description: "ranks that report nothing for so long count as hung",
  }),
  INTERNEVO_EXECUTOR_SUPERVISOR_GRACE_SECONDS: Type.Number({
    default: 10,
    minimum: 0,
    maximum: 12,
    description: "for a checkpoint when the service stops; below the service's own bound",
  }),
  INTERNEVO_EXECUTOR_SUPERVISOR_GIVE_WAY_SECONDS: Type.Number({
    default: 600,
    minimum: 1,
    maximum: 100_000,
    description: "for a step and a checkpoint when a job gives way to another; then its ranks are killed",
  }),
  INTERNEVO_EXECUTOR_SUPERVISOR_RESTART_LIMIT: Type.Integer({
    default: DEFAULT_LOST_RANK_LIMIT,
    minimum: 1,
    maximum: 1000,
    description: "attempts in a row that may fail without a newer checkpoint; then the job is held",
  }),
});

/** Trains with the winning plan and keeps the run alive. */
export const executorSupervisor: ServiceDefinition<typeof ConfigSchema> = {
  name: "executor-supervisor",
  configSchema: ConfigSchema,
  start(service) {
    const { config, database } = service;
    const settings = {
      ...trainingSettings(config),
      profiling: profilingSettings(config),
      silenceSeconds: config.INTERNEVO_EXECUTOR_SUPERVISOR_SILENCE_SECONDS,
      graceSeconds: config.INTERNEVO_EXECUTOR_SUPERVISOR_GRACE_SECONDS,
      giveWaySeconds: config.INTERNEVO_EXECUTOR_SUPERVISOR_GIVE_WAY_SECONDS,
      restartLimit: config.INTERNEVO_EXECUTOR_SUPERVISOR_RESTART_LIMIT,
    };
    service.every(15, "launches of jobs that have ended", async () => {
      const cleared = await endLaunchesOfEndedJobs(database, settings.dataDirectory);
      if (cleared.length > 0) service.log.warn({ cleared }, "launches of jobs that have ended were ended");
    });
    service.every(60, "datasets that nobody writes any more", async () => {
      const removed = await removeAbandonedDatasets(settings.dataDirectory);
      if (removed.length > 0) service.log.warn({ removed }, "what was left of datasets was removed");
    });
    service.handleCommand({ type: "job.run", ...stagePlaces(database), handler: train(settings, database) });
  },
};
