export {
  runService,
  startService,
  type RunningService,
  type Service,
  type ServiceDefinition,
  type StartOptions,
} from "./service.ts";
export {
  handleCommand,
  OthersGoFirstError,
  type CommandContext,
  type CommandOptions,
  type CommandRuntime,
  type Effect,
} from "./command.ts";
export {
  keepLease,
  WorkStoppedError,
  HEARTBEAT_SECONDS,
  LEASE_TTL_SECONDS,
  type StopReason,
} from "./lease-keeper.ts";
export { BaseConfigSchema, readConfig, variablePrefix, type BaseConfig, type Environment } from "./config.ts";
export { fromTexts } from "./from-texts.ts";
export { createLogger, logError, type Logger } from "./logging.ts";
export { createHealth, type Health } from "./health.ts";
export { FairTurns, type FairTurnsOptions } from "./fair-turns.ts";
