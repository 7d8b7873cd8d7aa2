export { profiler } from "./app.ts";
