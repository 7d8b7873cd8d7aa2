export { makeDataDirectory, RESTORE_MARKER } from "./data-directory.ts";
export { lockDirectory } from "./directory-lock.ts";
export { freePort } from "./ports.ts";
export { databaseUrlFor } from "./postgres.ts";
export { askToEnd, processStart, STACK_MARKER } from "./proc.ts";
export { boundOwnLog, DEFAULT_LOG_ROTATION } from "./rotating-log.ts";
export {
  startLocalStack,
  type LocalStack,
  type LocalStackOptions,
  type ServerAddresses,
  type ServiceProcess,
} from "./stack.ts";
export { SERVICE_NAMES } from "@internevo/domain";
export { productServices } from "./services.ts";
export {
  parseSecrets,
  readSecrets,
  readStackInfo,
  supervisorLives,
  writeSecrets,
  type StackInfo,
  type StackSecrets,
} from "./stack-info.ts";
export type { ProcessEnd } from "./supervisor.ts";
export { findNatsServer } from "./nats.ts";
