import { Type } from "typebox";
import type { ServiceDefinition } from "@internevo/service-kit";
import { MOST_AT_A_TIME, nativeConfig, stagePlaces } from "@internevo/stages";
import { planJobConsumer } from "./consumers/plan-job.ts";

const ConfigSchema = Type.Object({ INTERNEVO_THREADS_PER_RANK: nativeConfig.INTERNEVO_THREADS_PER_RANK });

/** Searches plans. */
export const planner: ServiceDefinition<typeof ConfigSchema> = {
  name: "planner",
  configSchema: ConfigSchema,
  start(service) {
    const { config, database } = service;
    service.handleCommand({
      type: "job.plan",
      // They take turns in their searches, and share the places: whoever submits many keeps no other project waiting.
      ...stagePlaces(database),
      concurrency: MOST_AT_A_TIME,
      handler: planJobConsumer({ threadsPerRank: config.INTERNEVO_THREADS_PER_RANK }, database),
    });
  },
};
