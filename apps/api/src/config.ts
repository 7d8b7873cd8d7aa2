import { Type } from "typebox";

/** Beyond what every service reads; see docs/api.md. */
export const ApiConfigSchema = Type.Object({
  INTERNEVO_API_HOST: Type.String({ default: "127.0.0.1", description: "address to listen on" }),
  INTERNEVO_API_PORT: Type.Integer({ default: 8080, minimum: 0, maximum: 65_535, description: "0: any free one" }),
  INTERNEVO_API_TOKEN: Type.Optional(Type.String({ minLength: 24, maxLength: 200, pattern: "^[A-Za-z0-9._~+/-]+=*$", description: "an admin token that whoever starts the service has made; without it the first start makes one and prints it" })),
  INTERNEVO_API_CONSOLE_DIRECTORY: Type.Optional(Type.String({ description: "the built console; default: apps/console/dist of the checkout" })),
  INTERNEVO_API_TRUST_PROXY: Type.Boolean({ default: false, description: "take the caller's address from X-Forwarded-For" }),
  INTERNEVO_API_REQUESTS_PER_MINUTE: Type.Integer({ default: 6000, minimum: 1, description: "for one token" }),
  INTERNEVO_API_MAXIMUM_EVENT_LOOP_DELAY_MS: Type.Integer({ default: 2000, minimum: 0, description: "a process that falls further behind answers 503 until it has caught up; 0: never" }),
  INTERNEVO_CLUSTERS: Type.Optional(Type.String({ minLength: 1, description: "file that describes the hosts of clusters with launcher: ssh" })),
  INTERNEVO_API_MAXIMUM_LOCAL_RANKS: Type.Optional(Type.Integer({ minimum: 1, description: "ranks of a job with launcher: local; default: four a core, at least 8" })),
});
