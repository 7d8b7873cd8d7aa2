export { aJob, WIDE_HEADS_ON_GPUS } from "./a-job.ts";
export { aPlan, REQUIRED_PLAN_FIELDS } from "./a-plan.ts";
export { eventually } from "./eventually.ts";
export { growth } from "./growth.ts";
export { PATIENCE } from "./patience.ts";
