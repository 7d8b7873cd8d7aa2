import { describe, expect, it } from "vitest";
import { parsePlanLabel, ProblemError } from "@internevo/domain";
import { planOfJob } from "@internevo/plan";
import { jobOf } from "../test/random-plans.ts";
import {
  exportConfiguration,
  FRAMEWORKS,
  importConfiguration,
  type Framework,
  type FrameworkFile,
} from "./index.ts";

/*
 * What an option means in its framework is what is read and written here.
 */

const PLAN = "b1 n1 a0 pp1 dp128 tp1 sp1 ps1 gs1 oss128 ovnone/intra-layer";

const exported = (framework: Framework, written: Record<string, unknown>) => {
  const job = jobOf({ precision: framework === "internevo" ? "bf16-grad16" : "bf16", ...written });
  return exportConfiguration(framework, job, planOfJob(parsePlanLabel(PLAN), job));
};
const read = (framework: Framework, files: readonly FrameworkFile[]) =>
  importConfiguration(framework, files as [FrameworkFile, ...FrameworkFile[]]);

/** The faults of a refused import, as `field value: message → remedy`; none where it is read. */
function faultsOf(framework: Framework, ...files: FrameworkFile[]): string[] {
  try {
    read(framework, files);
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    return error.details.map(
      ({ field, value, message, remedy }) => `${field} ${JSON.stringify(value)}: ${message} → ${remedy}`,
    );
  }
  return [];
}

const toml = (text: string): FrameworkFile => ({
  name: "t.toml",
  text: `# torchrun --nnodes 2 --nproc-per-node 8\n[model]\nname = "llama3"\nflavor = "8B"\n${text}`,
});

describe("no clipping of gradients", () => {
  it.each(FRAMEWORKS)(
    "is written for %s as what leaves gradients as they are, and read back",
    (framework) => {
      const { files, inexpressible } = exported(framework, { optimizer: { clipGlobalNorm: 0 } });
      expect(inexpressible.filter(({ field }) => field.startsWith("optimizer."))).toEqual([]);
      const text = files.map((file) => file.text).join("\n");
      expect(text).toMatch(
        {
          internevo: /clip_grad_norm=0\.0/,
          megatron: /--clip-grad 0 /,
          deepspeed: /--clip-grad 0 [^]*"gradient_clipping": 0,/,
          torchtitan: /^max_norm = inf$/m,
        }[framework],
      );
      expect(read(framework, files).optimizer.clipGlobalNorm).toBe(0);
    },
  );

  it("is no norm of 0 in torchtitan, which makes every gradient 0", () => {
    expect(faultsOf("torchtitan", toml("[training]\nmax_norm = 0"))).toEqual([
      "training.max_norm 0: makes every gradient 0 → give inf, which clips none",
    ]);
  });
});
