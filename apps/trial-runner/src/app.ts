import { Type } from "typebox";
import { removeAbandonedDatasets } from "@internevo/data";
import type { ServiceDefinition } from "@internevo/service-kit";
import { nativeConfig, stagePlaces, trainingSettings } from "@internevo/stages";
import { tryPlans } from "./consumers/try-plans.ts";

const ConfigSchema = Type.Object({
  ...nativeConfig,
  INTERNEVO_TRIAL_RUNNER_TIMEOUT_SECONDS: Type.Number({
    default: 1800,
    exclusiveMinimum: 0,
    description: "bound on one trial",
  }),
  INTERNEVO_TRIAL_RUNNER_REPEAT_SECONDS: Type.Number({
    default: 120,
    minimum: 0,
    maximum: 86_400,
    description:
      "time for further runs of plans that were disturbed, or that the runs so far do not tell apart",
  }),
});

/** Tries the best plans for real. */
export const trialRunner: ServiceDefinition<typeof ConfigSchema> = {
  name: "trial-runner",
  configSchema: ConfigSchema,
  start(service) {
    const { config, database } = service;
    const settings = {
      ...trainingSettings(config),
      timeoutSeconds: config.INTERNEVO_TRIAL_RUNNER_TIMEOUT_SECONDS,
      repeatSeconds: config.INTERNEVO_TRIAL_RUNNER_REPEAT_SECONDS,
    };
    service.every(60, "datasets that nobody writes any more", async () => {
      const removed = await removeAbandonedDatasets(settings.dataDirectory);
      if (removed.length > 0) service.log.warn({ removed }, "what was left of datasets was removed");
    });
    service.handleCommand({
      type: "job.trial",
      ...stagePlaces(database),
      handler: tryPlans(settings, database),
    });
  },
};
