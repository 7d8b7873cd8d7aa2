import { ProblemSchema, type Problem } from "@internevo/contracts";
import { ProblemError, validate } from "@internevo/domain";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { problemDocument } from "../src/http/problems.ts";
import { startTestApi, type TestApi } from "./harness.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.close());

const send = (framework: string, ...files: { name: string; text: string }[]) =>
  api.app.inject({
    method: "POST",
    url: "/api/v1/plans/import",
    headers: { authorization: api.bearer.viewer },
    payload: { framework, profile: "a800-128", files },
  });

/** The faults of a refused import, whose answer is a problem. */
async function faults(framework: string, ...files: { name: string; text: string }[]): Promise<string[]> {
  const reply = await send(framework, ...files);
  const problem: Problem = validate(ProblemSchema, reply.json(), "internal", "the problem");
  expect([reply.statusCode, reply.headers["content-type"], problem.code]).toEqual([
    400,
    "application/problem+json; charset=utf-8",
    "bad-request",
  ]);
  return (problem.errors ?? []).map(({ field, message }) => `${field} ${message}`);
}

describe("a configuration that does not say how many ranks it is for", () => {
  it("is refused with the names of the request's fields, not only with options of the command line", async () => {
    const reply = await send("megatron", {
      name: "pretrain.sh",
      text: "python pretrain_gpt.py --num-layers 4\n",
    });
    const { errors }: Problem = validate(ProblemSchema, reply.json(), "internal", "the problem");
    const remedy = errors?.find(({ field }) => field === "nodes and gpusPerNode")?.remedy;
    expect(remedy).toMatch(/\bnodes and gpusPerNode\b/);
    expect(remedy).toMatch(/--nodes and --gpus-per-node/);
  });
});

describe("a configuration in Python", () => {
  const rest = "# torchrun --nproc-per-node 8\ndata = dict(seq_len=1, micro_bsz=1)\nparallel = dict()\n";

  it("that calls int() or float() with nothing is read", async () => {
    expect(
      await faults("internevo", {
        name: "c.py",
        text: `x = int()\nmodel = dict(num_layers=x, hidden_size=float())\n${rest}`,
      }),
    ).toContain("model.num_layers is not a number that is possible here");
    const toml = {
      name: "t.toml",
      text: `# torchrun --nproc-per-node 8\n[model]\nflavor = "internevo"\n[experimental]\ncustom_import = "m"\n`,
    };
    expect(await faults("torchtitan", toml, { name: "m.py", text: "args = Args(dim=int())\n" })).toContain(
      "m.py.dim is not a number that is possible here",
    );
  });

  it("whose values hold themselves is refused", async () => {
    for (const more of ['model["a"] = model\n', 'model["a"] = [model]\n', 'model["a"] = dict(b=model)\n']) {
      expect(await faults("internevo", { name: "c.py", text: `model = dict(a=1)\n${more}${rest}` })).toEqual([
        "model needs the module to be run",
      ]);
    }
  });

  it("that takes another value than it seems to is refused", async () => {
    const model = "model = dict(num_layers=NUM_LAYER)\n";
    for (const [text, fault] of [
      [
        `NUM_LAYER = 24\nfor NUM_LAYER in (32, 48):\n    pass\n${model}${rest}`,
        "model.num_layers needs the module to be run (line 2)",
      ],
      [
        `NUM_LAYER = 24\n${model}model.update(num_layers=8)\n${rest}`,
        "model needs the module to be run (line 3)",
      ],
    ] as const)
      expect((await faults("internevo", { name: "c.py", text })).join("; ")).toContain(fault);
  });
});

describe("a problem", () => {
  it("whose value JSON cannot hold is told all the same", () => {
    const circle: Record<string, unknown> = {};
    circle["a"] = circle;
    for (const value of [
      circle,
      1n,
      {
        toJSON: () => {
          throw new Error("no");
        },
      },
    ]) {
      const document = problemDocument(
        new ProblemError("bad-request", "wrong", [
          { field: "a", value, message: "is wrong", remedy: "mend it" },
        ]),
        "0".repeat(32),
      );
      expect(JSON.parse(JSON.stringify(document))).toMatchObject({
        code: "bad-request",
        errors: [{ field: "a", value: "(a value that JSON cannot hold)" }],
      });
    }
  });
});
