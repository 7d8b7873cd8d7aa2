import { nativeConfig } from "@internevo/stages";
import { webhookConfig } from "@internevo/webhooks";
import { Type } from "typebox";
import { DEFAULT_LIMITS } from "./http/limits.ts";
import { signInConfig } from "./sign-in/settings.ts";

/** Beyond what every service reads; see docs/reference/api.md. */
export const ApiConfigSchema = Type.Object({
  INTERNEVO_API_HOST: Type.String({ default: "127.0.0.1", description: "address to listen on" }),
  INTERNEVO_API_PORT: Type.Integer({
    default: 8080,
    minimum: 0,
    maximum: 65_535,
    description: "0: any free one",
  }),
  INTERNEVO_API_TOKEN: Type.Optional(
    Type.String({
      minLength: 24,
      maxLength: 200,
      pattern: "^[A-Za-z0-9._~+/-]+=*$",
      description:
        "an admin token that whoever starts the service has made; without it the first start makes one and prints it",
    }),
  ),
  INTERNEVO_API_CONSOLE_DIRECTORY: Type.Optional(
    Type.String({ description: "the built console; default: apps/console/dist of the checkout" }),
  ),
  INTERNEVO_API_TRUST_PROXY: Type.String({
    default: "false",
    description:
      "who is believed what X-Forwarded-For says of the caller: a number of proxies in front of the API, or their addresses and ranges, separated by commas; true: one",
  }),
  INTERNEVO_API_REQUESTS_PER_MINUTE: Type.Integer({
    default: 6000,
    minimum: 1,
    description: "for one token",
  }),
  INTERNEVO_API_MAXIMUM_EVENT_LOOP_DELAY_MS: Type.Integer({
    default: 2000,
    minimum: 0,
    description: "a process that falls further behind answers 503 until it has caught up; 0: never",
  }),
  INTERNEVO_API_STREAMS_OF_ONE_TOKEN: Type.Integer({
    default: DEFAULT_LIMITS.streamsOfOneToken,
    minimum: 1,
    maximum: 100_000,
    description: "event streams that one token has open at once; more are 429",
  }),
  INTERNEVO_API_STREAMS_PER_MINUTE: Type.Integer({
    default: DEFAULT_LIMITS.streamsPerMinute,
    minimum: 1,
    maximum: 1_000_000,
    description: "event streams that one token opens in a minute; more are 429",
  }),
  INTERNEVO_API_STREAMS: Type.Integer({
    default: DEFAULT_LIMITS.streams,
    minimum: 1,
    maximum: 100_000,
    description: "event streams that are open at once; more are 503",
  }),
  INTERNEVO_API_SEARCHES_OF_ONE_TOKEN: Type.Integer({
    default: 16,
    minimum: 1,
    maximum: 10_000,
    description: "searches of a kind beyond the shortest that run or wait for one token; more are 429",
  }),
  INTERNEVO_API_IDLE_THREAD_SECONDS: Type.Integer({
    default: 20,
    minimum: 1,
    maximum: 86_400,
    description: "how long a thread that has nothing to do is kept, with its memory",
  }),
  INTERNEVO_API_AUDIT_DAYS: Type.Integer({
    default: 90,
    minimum: 1,
    maximum: 36_500,
    description: "age in days beyond which rows of the audit log are deleted",
  }),
  INTERNEVO_API_AUDIT_ROWS: Type.Integer({
    default: 1_000_000,
    minimum: 1,
    maximum: 1_000_000_000,
    description:
      "rows of the audit log that each project keeps, and the installation; the oldest beyond are deleted",
  }),
  ...signInConfig,
  ...webhookConfig,
  INTERNEVO_CLUSTERS: nativeConfig.INTERNEVO_CLUSTERS,
  INTERNEVO_DATA_DIRECTORY: Type.Optional(
    Type.String({
      minLength: 1,
      description:
        "where the services keep checkpoints, as this machine sees it: " +
        "submission looks for room there, and jobs say where their files are",
    }),
  ),
  INTERNEVO_DATA_ROOTS: nativeConfig.INTERNEVO_DATA_ROOTS,
  INTERNEVO_NATIVE_DIRECTORY: nativeConfig.INTERNEVO_NATIVE_DIRECTORY,
  INTERNEVO_THREADS_PER_RANK: nativeConfig.INTERNEVO_THREADS_PER_RANK,
  INTERNEVO_API_MAXIMUM_LOCAL_RANKS: Type.Optional(
    Type.Integer({
      minimum: 1,
      description: "ranks of a job with launcher: local; default: four a core, at least 8",
    }),
  ),
});
