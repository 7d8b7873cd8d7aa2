export { aPlan } from "./a-plan.ts";
export { eventually } from "./eventually.ts";
export { growth } from "./growth.ts";
export { PATIENCE } from "./patience.ts";
