export { executorSupervisor } from "./app.ts";
