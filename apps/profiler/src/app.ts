import { Type } from "typebox";
import type { ServiceDefinition } from "@internevo/service-kit";
import { nativeConfig, profilingConfig, profilingSettings, stagePlaces } from "@internevo/stages";
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
      ...stagePlaces(database),
      handler: profileJob(settings, database),
    });
  },
};
