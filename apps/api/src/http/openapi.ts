import swagger from "@fastify/swagger";
import swaggerUi from "@fastify/swagger-ui";
import type { FastifyInstance } from "fastify";

/**
 * OpenAPI 3.1 of every route below, at /docs (for people) and /docs/json, /docs/yaml. Register it before the
 * routes.
 */
export async function registerOpenApi(app: FastifyInstance, version: string): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: "3.1.0",
      info: {
        title: "InternEvo",
        version,
        description:
          "Plans, trials and trains long-sequence language models over hybrid parallelism " +
          "and redundant sharding. Every error is a problem (RFC 9457) with a stable `code`.",
        license: { name: "Apache-2.0", identifier: "Apache-2.0" },
      },
      components: {
        securitySchemes: {
          token: { type: "http", scheme: "bearer", description: "printed once, at the first start" },
        },
      },
      security: [{ token: [] }],
    },
    hideUntagged: true,
  });
  await app.register(swaggerUi, { routePrefix: "/docs" });
}
