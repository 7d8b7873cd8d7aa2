import { validate } from "@internevo/domain";
import type { FastifyInstance } from "fastify";
import type { TSchema } from "typebox";
import { Value } from "typebox/value";

/**
 * Requests are checked as everything else of the product is: each fault with its field, value and remedy. Query and path
 * parameters arrive as text and are converted; a body is taken as it is. Answers are written as they are: their schemas are
 * the documentation, and the tests hold them to it.
 */
export function registerValidation(app: FastifyInstance): void {
  app.setValidatorCompiler<TSchema>(({ schema, httpPart }) => (data: unknown) => {
    const value = httpPart === "body" ? data : Value.Convert(schema, Value.Clone(data));
    try {
      return { value: validate(schema, value, "bad-request", `the request's ${httpPart ?? "content"}`) };
    } catch (error) {
      return { error: error as Error };
    }
  });
  app.setSerializerCompiler(() => (data) => JSON.stringify(data));
}
