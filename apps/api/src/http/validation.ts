import { validate } from "@internevo/domain";
import { fromTexts } from "@internevo/service-kit";
import type { FastifyInstance } from "fastify";
import { Type, type TSchema } from "typebox";

/**
 * Requests are checked as everything else of the product is: each fault with its field, value and remedy.
 * Query and path parameters arrive as text and are converted; a body is taken as it is. Answers are written
 * as they are: their schemas are the documentation, and the tests hold them to it.
 */
export function registerValidation(app: FastifyInstance): void {
  app.setValidatorCompiler<TSchema>(({ schema, httpPart }) => (data: unknown) => {
    const value =
      httpPart !== "body" && Type.IsObject(schema) && typeof data === "object" && data !== null
        ? fromTexts(schema, data as Record<string, unknown>)
        : data;
    try {
      return { value: validate(schema, value, "bad-request", `the request's ${httpPart ?? "content"}`) };
    } catch (error) {
      return { error: error as Error };
    }
  });
  app.setSerializerCompiler(() => (data) => JSON.stringify(data));
}
