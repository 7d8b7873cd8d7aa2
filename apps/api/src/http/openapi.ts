import swagger from "@fastify/swagger";
import swaggerUi from "@fastify/swagger-ui";
import type { FastifyInstance } from "fastify";

/** The document as it is sent, by its path: a megabyte that nobody's request makes again. */
function writtenOnce(app: FastifyInstance): (path: string) => { type: string; bytes: Buffer } | undefined {
  const known = new Map<string, Buffer>();
  const kinds = {
    "/docs/json": { type: "application/json; charset=utf-8", write: () => JSON.stringify(app.swagger()) },
    "/docs/yaml": { type: "application/x-yaml", write: () => app.swagger({ yaml: true }) },
  };
  return (path) => {
    if (!Object.hasOwn(kinds, path)) return undefined;
    const { type, write } = kinds[path as keyof typeof kinds];
    const bytes = known.get(path) ?? Buffer.from(write());
    known.set(path, bytes);
    return { type, bytes };
  };
}

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
  const written = writtenOnce(app);
  await app.register(swaggerUi, {
    routePrefix: "/docs",
    uiHooks: {
      preHandler(request, reply, done) {
        const document = written(request.routeOptions.url ?? "");
        if (document === undefined) done();
        else void reply.type(document.type).send(document.bytes);
      },
    },
  });
}
