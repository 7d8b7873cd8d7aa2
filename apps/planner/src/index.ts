export { planner } from "./app.ts";
