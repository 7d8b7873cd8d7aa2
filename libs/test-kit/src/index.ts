export { aPlan } from "./a-plan.ts";
export { eventually } from "./eventually.ts";
export { PATIENCE } from "./patience.ts";
