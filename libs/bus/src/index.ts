export {
  assertServerVersion,
  connectBus,
  OLDEST_SERVER,
  type Bus,
  type BusOptions,
  type PublishResult,
} from "./bus.ts";
export type { Consumption, ConsumeRequest, Delivery } from "./consumption.ts";
export { parseNatsUrl, type NatsAddress } from "./address.ts";
