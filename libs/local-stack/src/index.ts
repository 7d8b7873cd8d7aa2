export { makeDataDirectory } from "./data-directory.ts";
export { askToEnd } from "./proc.ts";
export { boundOwnLog, DEFAULT_LOG_ROTATION } from "./rotating-log.ts";
export { startLocalStack, type LocalStack, type LocalStackOptions, type ServiceProcess } from "./stack.ts";
export { productServices, SERVICE_NAMES } from "./services.ts";
export { readStackInfo, supervisorLives, type StackInfo } from "./stack-info.ts";
export type { ProcessEnd } from "./supervisor.ts";
