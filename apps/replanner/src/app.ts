import { Type } from "typebox";
import type { ServiceDefinition } from "@internevo/service-kit";
import { MOST_AT_A_TIME, nativeConfig, profilingConfig, profilingSettings } from "@internevo/stages";
import { finishFiring, fireDueWorkloads, getFiring } from "@internevo/store";
import { replan } from "./consumers/replan.ts";
import { nextRunAt } from "./schedule.ts";

const ConfigSchema = Type.Object({
  ...nativeConfig,
  ...profilingConfig,
  INTERNEVO_REPLANNER_POLL_SECONDS: Type.Number({
    default: 5,
    exclusiveMinimum: 0,
    maximum: 3600,
    description: "how often due workloads are looked for",
  }),
});

/** Plans workloads again by their schedule. */
export const replanner: ServiceDefinition<typeof ConfigSchema> = {
  name: "replanner",
  configSchema: ConfigSchema,
  start(service) {
    const { config, database, log } = service;
    const settings = { ...profilingSettings(config), top: 10 };
    service.every(config.INTERNEVO_REPLANNER_POLL_SECONDS, "the schedule", async () => {
      const fired = await database.transaction((tx) => fireDueWorkloads(tx, { now: new Date(), nextRunAt }));
      for (const { id, workloadId, state, outcome } of fired)
        log.info({ firingId: id, workloadId, state, outcome }, "a workload was due");
    });
    service.handleCommand({
      type: "workload.replan",
      concurrency: MOST_AT_A_TIME,
      handler: replan(settings, database),
      // A workload that is removed takes its firings with it.
      isObsolete: async ({ firingId }) => (await getFiring(database.db, firingId)) === undefined,
      onGivenUp: async (tx, { firingId }, failure) =>
        void (await finishFiring(tx, firingId, { state: "failed", outcome: failure.message })),
    });
  },
};
