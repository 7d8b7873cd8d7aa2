import { Type } from "typebox";
import type { ServiceDefinition } from "@internevo/service-kit";
import { MOST_AT_A_TIME, nativeConfig, profilingConfig, profilingSettings } from "@internevo/stages";
import { profileJob } from "./consumers/profile-job.ts";

const ConfigSchema = Type.Object({ ...nativeConfig, ...profilingConfig });

/** Measures clusters. */
export const profiler: ServiceDefinition<typeof ConfigSchema> = {
  name: "profiler",
  configSchema: ConfigSchema,
  start(service) {
    const { config, database } = service;
    const settings = profilingSettings(config);
    service.handleCommand({
      type: "job.profile",
      concurrency: MOST_AT_A_TIME,
      handler: profileJob(settings, database),
    });
  },
};
