import { expect, it } from "vitest";
import { asPartOf, ProblemError } from "./problem.ts";

it("names fields of held-out data below validation, and how documents are packed where it is said", async () => {
  const fields = ["data", "data.path", "data.maxDocumentsPerSequence", "data.packing", "steps"];
  const details = fields.map((field) => ({ field, message: "is wrong", remedy: "change it" }));
  const failed = asPartOf("validation", () =>
    Promise.reject(new ProblemError("data-invalid", "wrong", details)),
  );
  const error = await failed.then(
    () => undefined,
    (one: unknown) => one,
  );
  expect((error as ProblemError).details.map(({ field }) => field)).toEqual([
    "validation.data",
    "validation.data.path",
    "data.maxDocumentsPerSequence",
    "data.packing",
    "steps",
  ]);
});
