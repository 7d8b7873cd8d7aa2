import { readFileSync, writeFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  parsePlanLabel,
  planLabel,
  ProblemError,
  replicaRanks,
  resolveJob,
  type JobSpec,
  type Plan,
} from "@internevo/domain";
import { CostModel, shippedProfile } from "@internevo/cost-model";
import { planFault, planOfJob } from "@internevo/plan";
import {
  predictWritten,
  exportConfiguration,
  FRAMEWORKS,
  importedJob,
  type ExportedConfiguration,
  type Framework,
  type FrameworkFile,
} from "./index.ts";
import { jobOf, planAndJob } from "../test/random-plans.ts";
import { faultsOf, read } from "../test/reading.ts";

/** The configuration, or null where the export refuses the plan by name. */
function exported(framework: Framework, job: JobSpec, plan: Plan): ExportedConfiguration | null {
  try {
    return exportConfiguration(framework, job, planOfJob(plan, job));
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    expect(error.code).toBe("plan-invalid");
    expect(error.details).toHaveLength(1);
    for (const { field, value, message, remedy } of error.details)
      expect([field, String(value), message, remedy].every((text) => text.length > 0)).toBe(true);
    return null;
  }
}

/** Whether a framework takes no such plan of the job, nor one that is near. */
function isBeyond(
  framework: Framework,
  { sequenceLengthTokens, model, precision }: JobSpec,
  { tensorParallel: tp, sequenceParallel: sp }: Plan,
): boolean {
  if (framework === "megatron") return tp === 1 && sp > 1 && sequenceLengthTokens % (2 * sp) !== 0;
  if (framework === "torchtitan")
    return sequenceLengthTokens % (2 * sp) !== 0 || (tp > 1 && model.kvHeads % tp !== 0);
  if (framework !== "deepspeed") return false;
  return model.kvHeads !== model.heads || (precision === "fp32" && tp === 1 && sp > 1);
}

describe.each(FRAMEWORKS)("%s", (framework) => {
  it("reads back what it wrote: the plan where it is expressible, else the nearest that it named", () => {
    let near = 0;
    let refused = 0;
    fc.assert(
      fc.property(planAndJob, ({ plan, job }) => {
        const written = exported(framework, job, plan);
        expect(written === null).toBe(isBeyond(framework, job, plan));
        if (written === null) {
          refused += 1;
          return;
        }
        const again = read(framework, written.files);
        expect(planLabel(again.plan)).toBe(planLabel(written.plan));
        expect(again.plan).toEqual(written.plan);
        // What the files say is a plan of the job's space.
        expect(planFault(again.plan, job)).toBeNull();
        const of = written.inexpressible.filter(({ field }) => field.startsWith("plan."));
        const [changed, named] = [
          JSON.stringify(sorted(written.plan)) !== JSON.stringify(sorted(normal(plan, job))),
          of.some(({ value, nearest }) => value !== nearest),
        ];
        expect(named).toBe(changed);
        if (changed) near += 1;
        // The nearest is expressible, so that it is found again exactly.
        const exact = exportConfiguration(framework, job, written.plan);
        expect(exact.files).toEqual(written.files);
        expect(
          exact.inexpressible.filter(
            ({ field, value, nearest }) => field.startsWith("plan.") && value !== nearest,
          ),
        ).toEqual([]);
        for (const { field, reason } of written.inexpressible)
          expect(reason, field).not.toBe("follows from the other fields");
        const says = new Map(written.inexpressible.map(({ field, nearest }) => [field, nearest]));
        expect(again.precision).toBe(says.get("precision") ?? job.precision);
        const { name: _asked, initStandardDeviation: _std, ...model } = job.model;
        expect(again.model).toMatchObject({
          ...model,
          tiedEmbeddings: says.get("model.tiedEmbeddings") ?? model.tiedEmbeddings,
        });
        expect([again.sequenceLengthTokens, again.globalBatchTokens, again.launch]).toEqual([
          job.sequenceLengthTokens,
          job.globalBatchTokens,
          { nodes: job.cluster.nodes, gpusPerNode: 8 },
        ]);
        expect(again.optimizer).toEqual(job.optimizer);
        expect([again.steps, again.seed]).toEqual([job.steps, says.get("seed") ?? job.seed]);
        const asOther = ["model.checkpoint", ...(job.precision === "fp32" ? ["--use-flash-attn-v2"] : [])];
        expect(again.takenAs.filter(({ option }) => !asOther.includes(option))).toEqual([]);
      }),
      { numRuns: framework === "deepspeed" ? 600 : 200 },
    );
    expect(near).toBeGreaterThan(10);
    if (framework !== "internevo") expect(refused).toBeGreaterThan(0);
  });

  it("writes what it wrote before", () => {
    const label = {
      internevo: "b1 n4 a0 pp1 dp32 tp1 sp4 ps8 gs1 oss16 ovinter-layer/intra-layer",
      megatron: "b1 n8 a1 pp4 dp16 tp2 sp2 ps1 gs1 oss16 ovinter-layer/intra-layer v2",
      deepspeed: "b1 n4 a1 pp1 dp32 tp1 sp4 ps128 gs1 oss1 ovinter-layer/intra-layer",
      torchtitan: "b1 n4 a1 pp1 dp32 tp1 sp4 ps8 gs1 oss1 ovinter-layer/intra-layer cp4",
    }[framework];
    const golden = jobOf({ precision: framework === "internevo" ? "bf16-grad16" : "bf16", seed: 1234 });
    const { files, inexpressible } = exportConfiguration(
      framework,
      golden,
      planOfJob(parsePlanLabel(label), golden),
    );
    const removes = framework === "torchtitan";
    expect(inexpressible.map(({ field }) => field)).toEqual(removes ? [] : ["checkpointing.keepLast"]);
    for (const { name, text } of files) {
      const place = new URL(`../test/golden/${framework}/${name}`, import.meta.url);
      if (process.env["UPDATE_GOLDEN"] === "1") writeFileSync(place, text);
      expect(text).toBe(readFileSync(place, "utf8"));
    }
  });

  it("makes a job of what it reads, of which the plan is one", () => {
    const job = jobOf();
    const { files, plan } = exportConfiguration(
      framework,
      job,
      planOfJob(parsePlanLabel("b1 n4 a1 pp1 dp32 tp1 sp4 ps1 gs1 oss1"), job),
    );
    const resolved = resolveJob(importedJob(read(framework, files), "imported", "80GB", "a800-128"));
    expect(resolved.model.layers).toBe(32);
    expect(resolved.optimizer).toEqual(job.optimizer);
    expect(planFault(plan, resolved)).toBeNull();
  });
});

const sorted = (plan: Plan): [string, unknown][] => Object.entries(plan).sort(([a], [b]) => (a < b ? -1 : 1));
/** All layers recomputed layer by layer are all layers recomputed. */
function normal(plan: Plan, job: JobSpec): Plan {
  if (
    plan.recomputeLayers === undefined ||
    plan.recomputeLayers < Math.ceil(job.model.layers / plan.pipelineParallel)
  )
    return plan;
  const { recomputeLayers: _all, ...rest } = plan;
  return { ...rest, recompute: true };
}

describe("what cannot be said", () => {
  const nearest = (framework: Framework, label: string, written?: Record<string, unknown>) =>
    exportConfiguration(framework, jobOf(written), planOfJob(parsePlanLabel(label), jobOf(written)))
      .inexpressible.filter(({ field }) => field !== "checkpointing.keepLast")
      .map(({ field, nearest: near }) => `${field}=${String(near)}`)
      .sort();

  it("names the field, its value and what is nearest", () => {
    expect(nearest("megatron", "b1 n4 a0 pp1 dp32 tp1 sp4 ps8 gs4 oss4 ovblock/none")).toEqual([
      "plan.backwardOverlap=intra-layer",
      "plan.forwardOverlap=inter-layer",
      "plan.gradientSharding=1",
      "plan.optimizerStateSharding=1",
      "plan.parameterSharding=32",
    ]);
    expect(
      nearest("deepspeed", "b1 n4 a0 pp4 dp8 tp1 sp4 ps8 gs1 oss1", { globalBatchTokens: 32 * 32_768 }),
    ).toEqual(["plan.optimizerStateSharding=32", "plan.parameterSharding=1"]);
    expect(nearest("deepspeed", "b1 n4 a0 pp1 dp32 tp1 sp4 ps1 gs1 oss1")).toEqual([
      "plan.optimizerStateSharding=128",
    ]);
    expect(nearest("deepspeed", "b1 n4 a0 pp1 dp32 tp4 sp4 ps1 gs1 oss1", { precision: "fp32" })).toEqual([
      "precision=fp32",
    ]);
    // DeepSpeed has no shards of a part of the replicas any more (MiCS): with secondary shards, all replicas
    // share the rest.
    expect(nearest("deepspeed", "b1 n4 a0 pp1 dp32 tp1 sp4 ps8 gs1 oss1 ovinter-layer/intra-layer")).toEqual([
      "plan.gradientSharding=16",
      "plan.optimizerStateSharding=16",
    ]);
    expect(nearest("torchtitan", "b1 n4 a0 pp1 dp32 tp1 sp4 ps8 gs1 oss4 ovinter-layer/intra-layer")).toEqual(
      ["plan.contextParallel=4", "plan.optimizerStateSharding=1", "plan.parameterSharding=32"],
    );
    expect(nearest("internevo", "b1 n4 a0 pp1 dp32 tp1 sp4 ps8 gs4 oss4 ovinter-layer/intra-layer")).toEqual([
      "plan.gradientSharding=1",
      "plan.optimizerStateSharding=1",
      "plan.parameterSharding=32",
      "precision=bf16-grad16",
    ]);
  });

  it("never makes of a sharded plan one that shards less, a pipeline of DeepSpeed and tensor parallelism of InternEvo apart", () => {
    fc.assert(
      fc.property(planAndJob, fc.constantFrom(...FRAMEWORKS), ({ plan, job }, framework) => {
        fc.pre(framework !== "deepspeed" || plan.pipelineParallel === 1);
        fc.pre(framework !== "internevo" || plan.tensorParallel === 1);
        const written = exported(framework, job, plan);
        fc.pre(written !== null);
        const near = written?.plan as Plan;
        const shards = ({ parameterSharding: ps, optimizerStateSharding: oss }: Plan) => ps * oss;
        expect(shards(near)).toBeGreaterThanOrEqual(shards(plan));
        expect(near.parameterSharding).toBeGreaterThanOrEqual(plan.parameterSharding);
        expect(near.parameterSharding * near.gradientSharding).toBeGreaterThanOrEqual(
          plan.parameterSharding * plan.gradientSharding,
        );
        expect(replicaRanks(near) % shards(near)).toBe(0);
      }),
    );
  });

  it("predicts what it wrote, in the precision that it wrote, and says when that does not fit", () => {
    const profile = shippedProfile("a800-128");
    const asked = parsePlanLabel("b1 n2 a0 pp1 dp64 tp2 sp2 ps1 gs64 oss64");
    const job = jobOf({ precision: "bf16" });
    const written = exportConfiguration("internevo", job, planOfJob(asked, job));
    expect(written.inexpressible.map(({ field }) => field)).toEqual(
      expect.arrayContaining(["plan.gradientSharding", "precision"]),
    );
    const predicted = predictWritten(job, written, profile);
    expect(predicted.peakMemoryBytes).toBe(
      new CostModel({ ...job, precision: "bf16-grad16" }, profile).memory(written.plan).bytes,
    );
    // Gradients stay whole there: more than was asked for.
    expect(predicted.peakMemoryBytes).toBeGreaterThan(
      new CostModel(job, profile).memory(planOfJob(asked, job)).bytes,
    );
    expect(predicted.fits).toBe(predicted.peakMemoryBytes <= 80e9);
    const small = jobOf({
      precision: "bf16",
      cluster: { nodes: 16, gpusPerNode: 8, memoryPerGpu: predicted.peakMemoryBytes - 1 },
    });
    expect(predictWritten(small, written, profile).fits).toBe(false);
    const bare = predictWritten(job, written, null);
    expect([bare.stepTimeSeconds, bare.runtimeBytes, bare.peakMemoryBytes]).toEqual([
      null,
      null,
      predicted.peakMemoryBytes - profile.device.runtimeBytes,
    ]);
  });

  it.each(["megatron", "deepspeed"] as const)(
    "%s: writes a seed that the program starts with, and says where it is another",
    (framework) => {
      for (const [seed, written, said] of [
        [0, 1, [{ field: "seed", value: 0, nearest: 1 }]],
        [1, 1, []],
        [7, 7, []],
      ] as const) {
        const job = jobOf({ seed });
        const { files, inexpressible } = exportConfiguration(
          framework,
          job,
          planOfJob(parsePlanLabel("b1 n4 a0 pp1 dp32 tp1 sp4 ps1 gs1 oss128"), job),
        );
        expect(/--seed (\d+)/.exec(files[0]?.text ?? "")?.[1]).toBe(String(written));
        expect(inexpressible.filter(({ field }) => field === "seed")).toMatchObject(said);
      }
    },
  );

  it("refuses where nothing is near", () => {
    const odd = jobOf({ model: { base: "llama-7b", heads: 4, hiddenSize: 4096 } });
    expect(() =>
      exportConfiguration(
        "deepspeed",
        odd,
        planOfJob(parsePlanLabel("b1 n8 a0 pp1 dp16 tp1 sp8 ps1 gs1 oss1 cp2"), odd),
      ),
    ).toThrow(ProblemError);
    const grouped = { model: { base: "llama-7b", kvHeads: 2 } };
    expect(nearest("megatron", "b1 n4 a0 pp1 dp32 tp1 sp4 ps1 gs1 oss1", grouped)).toEqual([
      "plan.contextParallel=2",
    ]);
    expect(() =>
      nearest("megatron", "b1 n4 a0 pp1 dp32 tp1 sp4 ps1 gs1 oss1", {
        ...grouped,
        sequenceLengthTokens: 32_764,
        globalBatchTokens: 32_764 * 128,
        model: { base: "llama-7b", kvHeads: 1 },
      }),
    ).toThrow(/cannot express/);
    expect(() =>
      exportConfiguration(
        "megatron",
        jobOf(),
        planOfJob(parsePlanLabel("b1 n8 a0 pp1 dp8 tp1 sp8 ps1 gs1 oss1"), jobOf()),
      ),
    ).toThrow(/is 64, the cluster has 128 ranks/);
  });
});

describe("a sequence that a framework cuts into more parts than the plan", () => {
  const refusal = (framework: Framework, label: string, sequenceLengthTokens: number): string => {
    const job = jobOf({ sequenceLengthTokens, globalBatchTokens: 128 * sequenceLengthTokens });
    try {
      exportConfiguration(framework, job, planOfJob(parsePlanLabel(label), job));
    } catch (error) {
      if (error instanceof ProblemError)
        return error.details
          .map(({ field, value, message, remedy }) => `${field} ${String(value)}: ${message} → ${remedy}`)
          .join("; ");
    }
    return "written";
  };

  it("is refused for Megatron-LM, whose context ranks have two chunks each, even where they share heads", () => {
    expect(refusal("megatron", "b1 n4 a0 pp1 dp32 tp1 sp4 ps1 gs1 oss1", 32_764)).toMatch(
      /^plan.sequenceParallel 4: .*2 x 4 chunks.*32764 → /,
    );
    // A ring of 2 within 4 ranks: its own chunks divide 32764, those of all ranks do not.
    expect(refusal("megatron", "b1 n4 a0 pp1 dp32 tp1 sp4 ps1 gs1 oss1 cp2", 32_764)).toMatch(
      /^plan.sequenceParallel 4: /,
    );
    expect(refusal("megatron", "b1 n4 a0 pp1 dp32 tp4 sp4 ps1 gs1 oss1", 32_764)).toBe("written");
    expect(refusal("megatron", "b1 n1 a0 pp1 dp128 tp1 sp1 ps1 gs1 oss1", 32_763)).toBe("written");
  });

  it("is refused for torchtitan, which asks for a multiple of two times all its sequence ranks", () => {
    expect(refusal("torchtitan", "b1 n4 a0 pp1 dp32 tp1 sp4 ps1 gs1 oss1", 32_764)).toMatch(
      /^plan.sequenceParallel 4: .*32764/,
    );
    expect(refusal("torchtitan", "b1 n4 a0 pp1 dp32 tp4 sp4 ps1 gs1 oss1", 32_764)).toMatch(
      /^plan.sequenceParallel 4: .*32764/,
    );
    expect(refusal("torchtitan", "b1 n1 a0 pp1 dp128 tp1 sp1 ps1 gs1 oss1", 32_763)).toMatch(
      /^sequenceLengthTokens 32763: .*→ /,
    );
  });
});

const deepspeed = (script: string, json: unknown): FrameworkFile[] => [
  {
    name: "run.sh",
    text: `deepspeed --num_nodes 1 --num_gpus 8 pretrain_gpt.py --num-layers 4 --hidden-size 1024 --num-attention-heads 8 --swiglu --vocab-size 1000 --seq-length 4096 --micro-batch-size 1 --global-batch-size 16 --bf16 --deepspeed --deepspeed_config conf/ds.json ${script}`,
  },
  { name: "ds.json", text: JSON.stringify({ bf16: { enabled: true }, ...(json as object) }) },
];

describe("torchtitan's layers of a part of a stage", () => {
  const stages = (schedule: string, lines: string): FrameworkFile => ({
    name: "train.toml",
    text: `# torchrun --nnodes 1 --nproc-per-node 8 train.py
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 4
seq_len = 8192
[parallelism]
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "${schedule}"
${lines}
`,
  });
  const each = (count: number): string => `pipeline_parallel_layers_per_stage = ${count}`;
  const FIELD = "parallelism.pipeline_parallel_layers_per_stage";

  it("are named as they are where no stage has whole parts, with what works instead", () => {
    expect(faultsOf("torchtitan", stages("Interleaved1F1B", each(8)))).toEqual([
      `${FIELD}: makes 5 parts of 34 layers, which 2 stages cannot share evenly: pipeline_parallel_first_stage_less_layers 1 and ` +
        "pipeline_parallel_last_stage_less_layers 1 count as layers → give 6, 9, 10 or 11, or give 0 for both of them, " +
        "where 8 makes 4 parts",
    ]);
    for (const count of [6, 9, 10, 11])
      expect(faultsOf("torchtitan", stages("Interleaved1F1B", each(count)))).toEqual([]);
    const none =
      "pipeline_parallel_first_stage_less_layers = 0\npipeline_parallel_last_stage_less_layers = 0\n";
    expect(faultsOf("torchtitan", stages("Interleaved1F1B", none + each(8)))).toEqual([]);
    expect(faultsOf("torchtitan", stages("Interleaved1F1B", none + each(12)))).toEqual([
      `${FIELD}: makes 3 parts of 32 layers, which 2 stages cannot share evenly → give 6, 8, 9 or 10`,
    ]);
  });

  it("are named where the schedule has another number of parts", () => {
    expect(faultsOf("torchtitan", stages("1F1B", each(9)))).toEqual([
      `${FIELD}: makes 2 parts of a stage, which 1F1B does not have → give 17, 18, 19 or 20, or use Interleaved1F1B`,
    ]);
    expect(faultsOf("torchtitan", stages("Interleaved1F1B", each(17)))).toEqual([
      `${FIELD}: makes 1 part of a stage, which Interleaved1F1B does not have → give 6, 9, 10 or 11, or use 1F1B`,
    ]);
  });
});

describe("DeepSpeed", () => {
  it("reads ZeRO with Ulysses, and shards of ZeRO++ and MiCS", () => {
    const plan = (zero: object) =>
      planLabel(
        read("deepspeed", deepspeed("--ds-sequence-parallel-size 4", { zero_optimization: zero })).plan,
      );
    expect(plan({ stage: 2 })).toBe("b1 n8 a0 pp1 dp2 tp1 sp4 ps1 gs8 oss8");
    expect(plan({ stage: 3 })).toBe("b1 n8 a0 pp1 dp2 tp1 sp4 ps8 gs1 oss1 ovinter-layer/intra-layer");
    expect(plan({ stage: 3, zero_hpz_partition_size: 2, overlap_comm: false })).toBe(
      "b1 n8 a0 pp1 dp2 tp1 sp4 ps2 gs4 oss4",
    );
    expect(plan({ stage: 3, mics_shard_size: 4, overlap_comm: false })).toBe(
      "b1 n8 a0 pp1 dp2 tp1 sp4 ps4 gs1 oss1",
    );
  });

  it("takes the one file beside the script as its JSON, and says so where the script calls it otherwise", () => {
    const [script, json] = deepspeed("", { zero_optimization: { stage: 1 } }) as [
      FrameworkFile,
      FrameworkFile,
    ];
    const said = (name: string, text = script.text) =>
      read("deepspeed", [
        { ...script, text },
        { ...json, name },
      ]).takenAs.filter(({ option }) => option === "--deepspeed_config");
    expect(said("ds.json")).toEqual([]);
    const named = `CONFIG=conf/ds.json\n${script.text.replace("conf/ds.json", "$CONFIG")}`;
    expect(said("ds.json", named)).toEqual([]);
    expect(said("other.json")).toEqual([
      { option: "--deepspeed_config", value: "conf/ds.json", as: "the file beside it, other.json" },
    ]);
    expect(
      faultsOf("deepspeed", script, { ...json, name: "a.json" }, { ...json, name: "b.json" }),
    ).toMatchObject([expect.stringMatching(/^--deepspeed_config: is a file that is not there/)]);
  });

  it("refuses a field of the JSON that is given twice, as DeepSpeed does", () => {
    const [script, json] = deepspeed("", { zero_optimization: { stage: 1 } }) as [
      FrameworkFile,
      FrameworkFile,
    ];
    expect(
      faultsOf("deepspeed", script, {
        ...json,
        text: json.text.replace('"stage":1', '"stage":1,"st\\u0061ge":2'),
      }),
    ).toEqual(["stage: is given twice → give it once"]);
    expect(
      faultsOf("deepspeed", script, {
        ...json,
        text: json.text.replace("}}", '},"fp16":{"enabled":false}}'),
      }),
    ).toEqual([]);
  });

  it("asks for the script where it is given the JSON, or another framework's file", () => {
    const file = (name: string, text: string): FrameworkFile => ({ name, text });
    const json = file(
      "ds_config.json",
      '{ // of DeepSpeed\n "train_batch_size": 64,\n "zero_optimization": { "stage": 3 } }',
    );
    const toml = file("a.toml", '[model]\nname = "llama3"\n[training]\nsteps = 3\n');
    const yaml = file("a.yaml", "# a job\nmodel:\n  layers: 4\n  list:\n    - 1\n");
    expect(faultsOf("deepspeed", json)).toEqual([
      "file: is JSON → give the script that starts training; it names this file with --deepspeed_config",
    ]);
    expect(faultsOf("megatron", yaml)).toEqual([
      "file: is YAML → give the script that starts training, with its options",
    ]);
    expect(faultsOf("internevo", toml)).toEqual([
      "file: is TOML → give the Python file that training is started with; a TOML file is read as framework torchtitan",
    ]);
    expect(faultsOf("torchtitan", yaml)).toEqual(["file: is YAML → give the job's TOML file"]);
    expect(faultsOf("deepspeed", file("a.sh", "A=1\nB=2\n")).join()).not.toMatch(/TOML/);
  });

  it("says what contradicts what", () => {
    expect(
      faultsOf("deepspeed", ...deepspeed("--zero-stage 1", { zero_optimization: { stage: 3 } }))[0],
    ).toMatch(/^--zero-stage: contradicts zero_optimization.stage 3/);
    expect(
      faultsOf(
        "deepspeed",
        ...deepspeed("--pipeline-model-parallel-size 2", { zero_optimization: { stage: 3 } }),
      )[0],
    ).toMatch(/cannot be used with a pipeline/);
    expect(faultsOf("deepspeed", ...deepspeed("", { train_batch_size: 32 }))[0]).toMatch(
      /^train_batch_size: contradicts the script's options, by which it is 16/,
    );
    expect(
      faultsOf(
        "deepspeed",
        ...deepspeed("", { zero_optimization: { stage: 3, offload_optimizer: { device: "cpu" } } }),
      )[0],
    ).toMatch(/moves model states to the host/);
    expect(faultsOf("deepspeed", ...deepspeed("", { data_types: { grad_accum_dtype: "fp32" } }))[0]).toMatch(
      /needs ZeRO: without it DeepSpeed refuses/,
    );
    expect(faultsOf("deepspeed", ...deepspeed("", { zero_optimisation: {} }))[0]).toMatch(
      /did you mean zero_optimization/,
    );
    expect(faultsOf("deepspeed", deepspeed("", {})[0]!)[0]).toMatch(
      /^--deepspeed_config: is a file that is not there/,
    );
  });
});

describe("Python and TOML", () => {
  const python = (parallel: string, more = ""): FrameworkFile => ({
    name: "c.py",
    text: `# torchrun --nnodes 2 --nproc-per-node 8\nH = 4096\nL = H // 128\nimport os\nNAME = os.environ["X"]\nmodel_type = "LLAMA2"\nmodel = dict(hidden_size=H, num_layers=L, num_attention_heads=32, vocab_size=1_000, mlp_ratio=8 / 3, dtype="torch.bfloat16", checkpoint=0.5)\ndata = dict(seq_len=2**12, micro_bsz=2, micro_num=4)\n${more}\nparallel = dict(${parallel})\n`,
  });

  it("evaluates a module without running it", () => {
    const { plan, model } = read("internevo", [
      python(
        "tensor=dict(size=4, mode='isp'), weight=dict(size=8, overlap=True), zero1=dict(size=-1), pipeline=1",
      ),
    ]);
    expect(planLabel(plan)).toBe("b2 n4 a0 pp1 dp4 tp1 sp4 ps8 gs1 oss2 ovinter-layer/intra-layer k16");
    expect([model.layers, model.ffnHiddenSize]).toEqual([32, 11_008]);
  });

  it("says what is wrong in it", () => {
    expect(faultsOf("internevo", python("tensor=2, weight=dict(size=1)"))[0]).toMatch(
      /^parallel.tensor.mode: keeps activations whole/,
    );
    expect(faultsOf("internevo", python("tensor=dict(size=2, mode='msp'), weight=dict(size=4)"))[0]).toMatch(
      /^parallel.weight.size: needs parallel.tensor.mode isp/,
    );
    expect(faultsOf("internevo", python("tensor=dict(size=2, mod='isp')"))[0]).toMatch(/did you mean mode/);
    expect(faultsOf("internevo", python("zero1=dict(size=3)"))[0]).toMatch(
      /^parallel.zero1.size: does not divide the 16 replicas/,
    );
    expect(
      faultsOf("internevo", python("tensor=1", "data = dict(seq_len=len([1]), micro_bsz=1)"))[0],
    ).toMatch(/^data.seq_len: needs the module to be run \(line 9\)/);
    expect(faultsOf("internevo", { name: "c.py", text: "model = dict(" })[0]).toMatch(/is not Python/);
  });

  const toml = (text: string): FrameworkFile => ({
    name: "t.toml",
    text:
      `# torchrun --nnodes 2 --nproc-per-node 8\n[model]\nname = "llama3"\nflavor ` +
      `= "8B"\n[training]\nseq_len = 8192\nlocal_batch_size = 1\n${text}`,
  });

  it("takes torchtitan's defaults where a TOML leaves something out", () => {
    const { plan, model, takenAs } = read("torchtitan", [toml("")]);
    expect(planLabel(plan)).toBe("b1 n1 a0 pp1 dp16 tp1 sp1 ps16 gs1 oss1 ovinter-layer/intra-layer k16");
    expect([model.ffnHiddenSize, model.kvHeads, model.vocabularySize]).toEqual([14_336, 8, 128_256]);
    expect(takenAs.filter(({ value }) => value !== "missing")).toEqual([]);
    expect(
      planLabel(
        read("torchtitan", [
          toml('[parallelism]\npipeline_parallel_degree = 2\n[activation_checkpoint]\nmode = "none"'),
        ]).plan,
      ),
    ).toBe("b1 n1 a0 pp2 dp8 tp1 sp1 ps1 gs8 oss8 ovinter-layer/intra-layer");
  });

  it("says what is wrong in a TOML", () => {
    expect(faultsOf("torchtitan", toml("[parallelism]\ntensor_paralel_degree = 2"))[0]).toMatch(
      /did you mean tensor_parallel_degree/,
    );
    expect(faultsOf("torchtitan", toml("[parallelism]\ndata_parallel_shard_degree = 3"))[0]).toMatch(
      /is not the 16 data-parallel ranks/,
    );
    expect(
      faultsOf(
        "torchtitan",
        toml("[parallelism]\ncontext_parallel_degree = 2\ntensor_parallel_degree = 2"),
      )[0],
    ).toMatch(/is in no plan/);
    expect(faultsOf("torchtitan", toml('dtype = "bfloat16"'))[0]).toMatch(
      /^training.dtype: keeps optimizer states in 2 bytes/,
    );
    expect(faultsOf("torchtitan", { name: "t.toml", text: "[x" })[0]).toMatch(/^t.toml: /);
    expect(faultsOf("torchtitan", { name: "t.toml", text: '[model]\nflavor = "8B"' })[0]).toMatch(
      /^nodes and gpusPerNode: are not said in the file → give nodes and gpusPerNode/,
    );
  });
});

describe("what is wrong with a file is said once, and so that it can be mended", () => {
  it.each([
    ["--tensor-parallel-size", "--tensor-model-parallel-size"],
    ["--pipeline-parallel-size", "--pipeline-model-parallel-size"],
  ])("names the option of which %s has left out words", (wrong, right) => {
    const script = `torchrun --nproc-per-node 8 pretrain_gpt.py ${wrong} 8`;
    expect(faultsOf("megatron", { name: "run.sh", text: script })).toContainEqual(
      expect.stringMatching(new RegExp(`^${wrong}: is not known → did you mean ${right}\\?`)),
    );
  });

  it("says of a switch of DeepSpeed's JSON that is neither on nor off only that", () => {
    const [script, json] = deepspeed("", { bf16: { enabled: "auto" } }) as [FrameworkFile, FrameworkFile];
    expect(faultsOf("deepspeed", script, json)).toEqual([
      "bf16.enabled: is neither true nor false → give one of them",
    ]);
  });

  it("says what torchtitan's quantization has that computes nothing", () => {
    const text =
      '# torchrun --nproc-per-node 8\n[model]\nname = "llama3"\nflavor = "8B"\n[quantize.linear.float8]\nrecipe_name = "rowwise"\n';
    expect(read("torchtitan", [{ name: "t.toml", text }]).warnings).toMatchObject([
      { field: "quantize.linear", value: "float8" },
    ]);
  });
});
