import { PROBLEM_CODES } from "@internevo/domain";
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import type { Reply } from "./exchange.ts";
import type { FuzzRequest } from "./requests.ts";

/** Says what is wrong with an answer. */
export class Judge {
  readonly #ajv = new Ajv2020({
    strict: false,
    allErrors: false,
    unicodeRegExp: false,
    validateFormats: true,
  });
  readonly #known = new WeakMap<object, ValidateFunction>();

  constructor() {
    addFormats.default(this.#ajv);
  }

  #fault(schema: object, value: unknown): string | null {
    const check = this.#known.get(schema) ?? this.#ajv.compile(schema);
    this.#known.set(schema, check);
    return check(value) ? null : this.#ajv.errorsText(check.errors);
  }

  /** Everything that is wrong; empty for a good answer. */
  violations({ operation, method }: FuzzRequest, reply: Reply | null, limitSeconds: number): string[] {
    if (reply === null) return [`no answer in ${limitSeconds} s`];
    const { status, type, body } = reply;
    // That it cannot serve now is an answer, as long as it says so.
    if (status >= 500 && status !== 503) return [`status ${status}: ${body.slice(0, 300)}`];
    const isHead = method === "HEAD";
    if (status >= 400) {
      if (!type.startsWith("application/problem+json"))
        return [`status ${status} as ${type === "" ? "nothing" : type}, not as application/problem+json`];
      if (isHead) return [];
      const problem = parsed(body) as { code?: unknown; traceId?: unknown; status?: unknown } | undefined;
      if (problem === undefined) return [`status ${status}: the problem is no JSON: ${body.slice(0, 300)}`];
      const schema = (operation.answers[status] ?? operation.answers["default"])?.content?.[
        "application/problem+json"
      ]?.schema;
      const fault = schema === undefined ? null : this.#fault(schema, problem);
      return [
        ...(typeof problem.code === "string" && (PROBLEM_CODES as readonly string[]).includes(problem.code)
          ? []
          : [`status ${status}: no code`]),
        ...(typeof problem.traceId === "string" && /^[0-9a-f]{32}$/.test(problem.traceId)
          ? []
          : [`status ${status}: no traceId`]),
        ...(problem.status === status
          ? []
          : [`status ${status}: the problem says ${JSON.stringify(problem.status)}`]),
        ...(fault === null ? [] : [`status ${status}: the problem is not as documented: ${fault}`]),
      ];
    }
    if (isHead || method !== operation.method || status === 304) return [];
    const answer = operation.answers[status];
    if (answer === undefined) return [`status ${status} is not documented`];
    if (answer.content === undefined)
      return body === "" ? [] : [`status ${status}: a body that is not documented`];
    const [, documented] = Object.entries(answer.content).find(([each]) => type.startsWith(each)) ?? [];
    if (documented === undefined) return [`status ${status} as ${type}, which is not documented`];
    if (!type.startsWith("application/json") || documented.schema === undefined) return [];
    const value = parsed(body);
    if (value === undefined) return [`status ${status}: no JSON: ${body.slice(0, 300)}`];
    const fault = this.#fault(documented.schema, value);
    return fault === null ? [] : [`status ${status}: the answer is not as documented: ${fault}`];
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
