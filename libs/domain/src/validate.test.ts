import { Type, type TSchema } from "typebox";
import { describe, expect, it } from "vitest";
import { JobFileSchema } from "./job-file.ts";
import { LabelsSchema } from "./priority.ts";
import { ProblemError } from "./problem.ts";
import { ModuleShapeSchema } from "./profile.ts";
import { Line, printable } from "./text.ts";
import { validate } from "./validate.ts";
import { DailyWindowSchema } from "./workload.ts";

function detailsOf(schema: TSchema, value: unknown): ProblemError["details"] {
  try {
    validate(schema, value, "bad-request", "it");
  } catch (error) {
    if (error instanceof ProblemError) return error.details;
    throw error;
  }
  throw new Error("it was accepted");
}

describe("validate", () => {
  it.each([
    [
      Type.Union([Type.Literal("fp32"), Type.Literal("bf16")]),
      "fp64",
      "is not one of fp32, bf16",
      "use fp32 or bf16",
    ],
    [
      Type.Enum(["local", "slurm", "other"]),
      3,
      "is not one of local, slurm, other",
      "use local, slurm or other",
    ],
    [Type.Literal(1), 2, "is not 1", "use 1"],
    [Type.Integer({ minimum: 1, maximum: 9 }), 0, "is less than 1", "give an integer from 1 to 9"],
    [Type.Integer({ minimum: 1 }), 1.5, "is not an integer", "give an integer of 1 or more"],
    [Type.Number({ exclusiveMinimum: 0 }), 0, "is not more than 0", "give a number above 0"],
    [
      Type.Number({ minimum: 0, exclusiveMaximum: 1 }),
      1,
      "is not less than 1",
      "give a number of 0 or more, below 1",
    ],
    [
      Type.Union([Type.Literal(0), Type.Number({ minimum: 1, maximum: 2 })]),
      0.5,
      "is less than 1",
      "give 0, or a number from 1 to 2",
    ],
    [Type.Union([Type.String(), Type.Null()]), 7, "is neither text nor null", "give text or null"],
    [Type.Boolean(), "yes", "is not true or false", "give true or false"],
    [Type.Array(Type.Integer(), { minItems: 1 }), [], "is empty", "give at least 1 item"],
    [
      Type.String({ maxLength: 3 }),
      "four",
      "is longer than 3 characters",
      "give text of at most 3 characters",
    ],
    [Type.String({ format: "uuid" }), "x", "is not of the format uuid", "give text of the format uuid"],
    [Type.Integer(), Number.NaN, "is not an integer", "give an integer"],
  ])("says what is wrong, and what would be right: %#", (schema, value, message, remedy) => {
    expect(detailsOf(schema, value)).toEqual([{ field: "(whole document)", value, message, remedy }]);
  });

  it("follows the branch of a union that is meant", () => {
    expect(
      detailsOf(ModuleShapeSchema, {
        module: "linear",
        pass: "forward",
        precision: "bf16",
        rows: 0,
        inputs: 1,
        outputs: 1,
      }).map((detail) => detail.field),
    ).toEqual(["rows"]);
    expect(
      detailsOf(ModuleShapeSchema, { module: "rmsnorm", pass: "up", precision: "bf16", rows: 1 }).map(
        (detail) => detail.field,
      ),
    ).toEqual(["width", "pass"]);
    const [unknown] = detailsOf(ModuleShapeSchema, { module: "convolution" });
    expect(unknown).toMatchObject({ field: "module", value: "convolution" });
    expect(unknown?.remedy).toContain("squared-norm");
  });

  it("names every fault, more than a handful too", () => {
    const schema = Type.Object(
      Object.fromEntries(Array.from({ length: 15 }, (_, i) => [`f${i}`, Type.Integer()])),
    );
    expect(detailsOf(schema, {})).toHaveLength(15);
  });

  it("names faults beside one another, whatever kind they are", () => {
    const schema = Type.Object({ id: Type.String({ format: "uuid" }), count: Type.Integer() });
    expect(detailsOf(schema, { id: "x", count: "y" }).map((detail) => detail.field)).toEqual(["id", "count"]);
  });

  it("says in the validator's words what it has no words for", () => {
    expect(detailsOf(Type.Integer({ multipleOf: 8 }), 12)).toEqual([
      {
        field: "(whole document)",
        message: expect.stringContaining("8"),
        remedy: expect.stringMatching(/./),
      },
    ]);
  });

  it("is not held up by a long list of faults", () => {
    let looks = 0;
    const paths = new Proxy(Array<string>(10_000).fill("\u0000"), {
      get: (list, key, receiver) => {
        looks += 1;
        return Reflect.get(list, key, receiver) as unknown;
      },
    });
    const data = { format: "text", paths };
    expect(
      detailsOf(JobFileSchema, {
        name: "x",
        model: "llama-7b",
        sequenceLengthTokens: 1,
        globalBatchTokens: 1,
        cluster: { nodes: 1, gpusPerNode: 1, memoryPerGpu: 1 },
        data,
      }),
    ).toHaveLength(20);
    expect(looks).toBeLessThan(1000);
  });

  it("counts items and fields before it looks at any of them", () => {
    let looks = 0;
    const counted = <T extends object>(value: T): T =>
      new Proxy(value, {
        get: (target, key, receiver) => {
          if (key !== "length") looks += 1;
          return Reflect.get(target, key, receiver) as unknown;
        },
      });
    const few = Type.Object({
      list: Type.Array(Type.Union([Type.Integer(), Type.String()]), { maxItems: 4 }),
      labels: Type.Record(Type.String({ pattern: "^[a-z]+$" }), Type.String(), { maxProperties: 2 }),
      maybe: Type.Union([Type.Array(Type.Integer(), { maxItems: 1 }), Type.Null()]),
    });
    const many = Object.fromEntries(Array.from({ length: 1000 }, (_, at) => [`label-${at}`, at]));
    expect(
      detailsOf(few, {
        list: counted(Array<boolean>(1000).fill(true)),
        labels: counted(many),
        maybe: [1, 2],
      }),
    ).toEqual([
      { field: "list", message: "holds more than 4 items", remedy: "give at most 4 items" },
      { field: "labels", message: "holds more than 2 fields", remedy: "give at most 2 fields" },
      { field: "maybe", message: "holds more than 1 item", remedy: "give at most 1 item" },
    ]);
    expect(looks).toBe(0);
  });

  it("does not count what another branch of a union means", () => {
    const either = Type.Union([Type.Array(Type.Integer(), { maxItems: 2 }), Type.Array(Type.String())]);
    expect(validate(either, ["a", "b", "c"], "bad-request", "it")).toEqual(["a", "b", "c"]);
  });

  it("names unknown fields once, with those that are known", () => {
    const details = detailsOf(JobFileSchema, {
      name: "x",
      model: "llama-7b",
      sequenceLengthTokens: 1,
      globalBatchTokens: 1,
      cluster: { nodes: 1, gpusPerNode: 1, memoryPerGpu: 1, gpus: 2 },
    });
    expect(details.map((detail) => detail.field)).toEqual(["cluster.gpus"]);
    expect(details[0]?.remedy).toMatch(
      /^did you mean `gpusPerNode`, which is given too\? \(Fields: .*gpusPerNode.*\)$/,
    );
    const [far] = detailsOf(Type.Object({ steps: Type.Integer() }, { additionalProperties: false }), {
      steps: 1,
      comment: 2,
    });
    expect(far?.remedy).toBe("remove it, or check its spelling. (Fields: steps)");
    const [slip] = detailsOf(JobFileSchema, {
      name: "x",
      model: "llama-7b",
      sequence_length: 1,
      globalBatchTokens: 1,
      cluster: { nodes: 1, gpusPerNode: 1, memoryPerGpu: 1 },
    }).filter(({ message }) => message === "unknown field");
    expect(slip?.remedy).toMatch(/^did you mean `sequenceLengthTokens`\? \(Fields: name, /);
    expect(
      detailsOf(
        Type.Object({}, { additionalProperties: false }),
        JSON.parse('{"__proto__": 1, "constructor": 2}'),
      ).map((detail) => detail.field),
    ).toEqual(["__proto__", "constructor"]);
  });

  it("says in words what is meant by slips that are often made in YAML", () => {
    const fields = Type.Object(
      { steps: Type.Optional(Type.Integer({ minimum: 1 })), rate: Type.Optional(Type.Number()) },
      { additionalProperties: false },
    );
    const remedyOf = (value: unknown, schema: TSchema = fields): string | undefined =>
      detailsOf(schema, value)[0]?.remedy;
    expect(remedyOf({ "<<": { steps: 1 } })).toBe(
      "merges of YAML (<<) are not read: write the fields themselves",
    );
    expect(remedyOf({ rate: 1, "0.0005": null })).toMatch(/^a decimal comma\?/);
    expect(remedyOf({ steps: "64" })).toBe("drop the quotes: 64");
    expect(remedyOf({ steps: "64k" })).toBe("give an integer of 1 or more");
    expect(remedyOf({ steps: "0" })).toBe("give an integer of 1 or more");
    expect(remedyOf([{ steps: 1 }])).toBe(
      "write fields with their values (name: value), without a dash before them",
    );
  });

  it("says patterns in words", () => {
    const [label] = detailsOf(LabelsSchema, { "a b": "x" });
    expect(label).toMatchObject({
      field: "a b",
      message: "has a name that is not of the form that is asked for",
      remedy: expect.stringMatching(/^use up to 63 letters, digits and/),
    });
    const [time] = detailsOf(DailyWindowSchema, { from: "24:00", to: "06:00" });
    expect(time?.remedy).toBe("give a time of day from 00:00 to 23:59 as HH:MM, such as 22:00");
  });

  it("does not take what every object inherits for a field", () => {
    expect(detailsOf(Type.Object({ constructor: Type.Unknown() }), {}).map((detail) => detail.field)).toEqual(
      ["constructor"],
    );
  });

  it("names a field of hostile spelling so that no terminal obeys it", () => {
    expect(detailsOf(Type.Object({}, { additionalProperties: false }), { "a\u001b[2J": 1 })[0]?.field).toBe(
      "a\\u001b[2J",
    );
  });
});

it.each(["\u{e0041}", "\u{e0100}", "\u{f0000}", "\u{1d173}", "\u{1bca0}"])(
  "a line of text holds no %j, which nobody sees",
  (hidden) => {
    expect(() => validate(Line(20), `a${hidden}b`, "job-invalid", "the name")).toThrow(
      `holds ${printable(hidden)}: a control character, or one that is no text`,
    );
  },
);

describe("printable", () => {
  it("escapes what a terminal obeys or cannot show, and nothing else", () => {
    expect(printable("a\u001b[31m\r\n\u0000\u007f\u009b\ud800\u2028\u202e")).toBe(
      "a\\u001b[31m\\r\\n\\u0000\\u007f\\u009b\\ud800\\u2028\\u202e",
    );
    expect(printable("a\u{e0041}b\u{1d173}")).toBe(String.raw`a\udb40\udc41b\ud834\udd73`);
    expect(printable("Größe 模型 🚀 'x' \\ \"y\"")).toBe("Größe 模型 🚀 'x' \\ \"y\"");
  });
});
