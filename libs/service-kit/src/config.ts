import { Type, type Static, type TObject } from "typebox";
import { Default } from "typebox/value";
import { ProblemError, validate } from "@internevo/domain";
import { fromTexts } from "./from-texts.ts";

/** What every service reads from its environment. */
export const BaseConfigSchema = Type.Object({
  DATABASE_URL: Type.String({ minLength: 1, description: "postgres://user:password@host:port/name" }),
  NATS_URL: Type.String({
    minLength: 1,
    description: "nats://[token@]host:port, several separated by commas",
  }),
  INTERNEVO_NAMESPACE: Type.String({
    default: "internevo",
    pattern: "^[A-Za-z0-9_-]{1,60}$",
    description: "prefix of streams and subjects",
  }),
  INTERNEVO_NATS_REPLICAS: Type.Optional(
    Type.Integer({
      minimum: 1,
      maximum: 5,
      description: "servers that keep each message; without it 3 in a cluster, else 1",
    }),
  ),
  HEALTH_HOST: Type.String({ default: "127.0.0.1" }),
  HEALTH_PORT: Type.Integer({
    default: 0,
    minimum: 0,
    maximum: 65_535,
    description: "of /healthz, /readyz and /metrics; 0: any free one",
  }),
  LOG_LEVEL: Type.Union(
    [
      Type.Literal("trace"),
      Type.Literal("debug"),
      Type.Literal("info"),
      Type.Literal("warn"),
      Type.Literal("error"),
    ],
    { default: "info" },
  ),
});
export type BaseConfig = Static<typeof BaseConfigSchema>;

export type Environment = Readonly<Record<string, string | undefined>>;

/** The prefix of a service's own variables: `trial-runner` → `INTERNEVO_TRIAL_RUNNER_`. */
export const variablePrefix = (service: string): string =>
  `INTERNEVO_${service.toUpperCase().replaceAll("-", "_")}_`;

/**
 * Reads a service's configuration: the schema's properties are the names of environment variables. Texts
 * become numbers and booleans where the schema says so; an empty variable counts as absent.
 * @throws ProblemError `bad-request`: a missing or wrong variable, or an unknown one with the service's
 * prefix, by name, value and remedy.
 */
export function readConfig<S extends TObject>(
  service: string,
  schema: S,
  environment: Environment,
): Static<S> & BaseConfig {
  const whole = Type.Object({ ...BaseConfigSchema.properties, ...schema.properties });
  const known = Object.keys(whole.properties);
  const prefix = variablePrefix(service);
  const unknown = Object.keys(environment).filter((name) => name.startsWith(prefix) && !known.includes(name));
  if (unknown.length > 0) {
    const nearest = known.filter((name) => name.startsWith(prefix)).join(", ") || "none";
    throw new ProblemError(
      "bad-request",
      `the configuration of ${service} is not valid: ${unknown[0]}: unknown variable`,
      unknown.map((name) => ({
        field: name,
        value: environment[name],
        message: "unknown variable",
        remedy: `remove it, or use one of: ${nearest}`,
      })),
    );
  }
  const given = Object.fromEntries(
    known.flatMap((name) => (environment[name] ? [[name, environment[name]]] : [])),
  );
  return validate(
    whole,
    Default(whole, fromTexts(whole, given)),
    "bad-request",
    `the configuration of ${service}`,
  ) as Static<S> & BaseConfig;
}
