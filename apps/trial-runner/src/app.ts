import { resolve } from "node:path";
import { Type } from "typebox";
import { trainerIn } from "@internevo/launcher";
import type { ServiceDefinition } from "@internevo/service-kit";
import { nativeConfig } from "@internevo/stages";
import { tryPlans } from "./consumers/try-plans.ts";

const ConfigSchema = Type.Object({
  ...nativeConfig,
  INTERNEVO_TRIAL_RUNNER_TIMEOUT_SECONDS: Type.Number({ default: 1800, exclusiveMinimum: 0, description: "bound on one trial" }),
});

/** Tries the best plans for real. */
export const trialRunner: ServiceDefinition<typeof ConfigSchema> = {
  name: "trial-runner",
  configSchema: ConfigSchema,
  start(service) {
    const { config, database } = service;
    const settings = {
      trainer: trainerIn(config.INTERNEVO_NATIVE_DIRECTORY),
      dataDirectory: resolve(config.INTERNEVO_DATA_DIRECTORY),
      clustersFile: config.INTERNEVO_CLUSTERS,
      threadsPerRank: config.INTERNEVO_THREADS_PER_RANK,
      timeoutSeconds: config.INTERNEVO_TRIAL_RUNNER_TIMEOUT_SECONDS,
    };
    service.handleCommand({ type: "job.trial", concurrency: 4, handler: tryPlans(settings, database) });
  },
};
