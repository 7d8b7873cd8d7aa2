export { trialRunner } from "./app.ts";
