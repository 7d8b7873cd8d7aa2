import { Type } from "typebox";
import type { ServiceDefinition } from "@internevo/service-kit";
import { nativeConfig, profilingConfig, profilingSettings } from "@internevo/stages";
import { profileJob } from "./consumers/profile-job.ts";

const ConfigSchema = Type.Object({ ...nativeConfig, ...profilingConfig });

/** Measures clusters. */
export const profiler: ServiceDefinition<typeof ConfigSchema> = {
  name: "profiler",
  configSchema: ConfigSchema,
  start(service) {
    const { config, database } = service;
    const settings = profilingSettings(config);
    // Jobs of different clusters are profiled side by side; those of one wait for its lease.
    service.handleCommand({ type: "job.profile", concurrency: 4, handler: profileJob(settings, database) });
  },
};
