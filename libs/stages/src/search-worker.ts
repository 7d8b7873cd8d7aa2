import { parentPort, workerData } from "node:worker_threads";
import { planJob, type PlanJobOptions } from "@internevo/search";
import type { JobSpec, Profile } from "@internevo/domain";

const { spec, profile, options } = workerData as { spec: JobSpec; profile: Profile; options: PlanJobOptions };
parentPort?.postMessage(planJob(spec, profile, options));
