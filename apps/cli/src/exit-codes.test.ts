import { expect, it } from "vitest";
import type { ProblemCode } from "@internevo/domain";
import { EXIT, exitCodeOfProblem } from "./exit-codes.ts";

it("is a failure where a server refuses with a code that is not known", () => {
  for (const code of ["teapot", "payment-required", "gateway-down"])
    expect(exitCodeOfProblem(code as ProblemCode)).toBe(EXIT.failed);
});
