export { replanner } from "./app.ts";
