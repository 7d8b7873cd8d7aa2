import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { CostModel } from "@internevo/cost-model";
import { axisValues } from "./advice.ts";
import { cli } from "../../test/in-process.ts";
import { chartSvg } from "../chart.ts";

const JOB = new URL("../../../../examples/paper/7b-32k.yaml", import.meta.url).pathname;
const QUICKSTART = new URL("../../../../examples/quickstart.yaml", import.meta.url).pathname;

describe("advice", () => {
  it("says why a plan is rejected and what would make it feasible, as text and as JSON", async () => {
    const plan = "b2 n1 a0 pp1 dp64 tp1 sp2 ps1 gs1 oss1";
    const { status, stdout } = await cli("why-not", JOB, plan);
    expect(status).toBe(0);
    expect(stdout).toMatch(/rejected, does not fit in memory: needs .*GiB more than the 74.5 GiB of a GPU/);
    expect(stdout).toMatch(/smallest change that makes it feasible: /);
    const answer = JSON.parse((await cli("--json", "why-not", JOB, plan)).stdout) as {
      binding: { reason: string };
      excessBytes: number;
    };
    expect(answer.binding.reason).toBe("memory-exceeded");
    expect(answer.excessBytes).toBeGreaterThan(0);
  });

  it("takes a plan by its rank", async () => {
    expect((await cli("why-not", JOB, "1")).stdout).toMatch(
      /feasible: by prediction rank 1 of [\d,]+ families of plans,/,
    );
    const missing = await cli("why-not", JOB, "0");
    expect(missing.status).toBe(2);
    expect(missing.stderr).toMatch(/there is no plan of rank 0/);
  });

  it("says whether packed documents were counted, where the data is and where it is not", async () => {
    const folder = mkdtempSync(join(tmpdir(), "packed-"));
    const text = join(folder, "text");
    const job = join(folder, "packed.json");
    writeFileSync(text, "A document in a line.\n".repeat(400));
    writeFileSync(
      job,
      JSON.stringify({
        name: "packed",
        model: { hiddenSize: 64, layers: 2, heads: 4, vocabularySize: 256 },
        sequenceLengthTokens: 1024,
        globalBatchTokens: 4096,
        data: { format: "text", paths: ["text"], packing: "documents", endOfDocumentToken: 10 },
        cluster: { nodes: 1, gpusPerNode: 2, memoryPerGpu: "80GB", profile: "a800-128" },
      }),
    );
    const questions = [
      ["plan", job],
      ["why-not", job, "1"],
      ["explain", job],
      ["simulate", job],
      ["what-if", job, "--axis", "nodes", "--values", "1,2"],
    ] as const;
    const counted = /Packed documents are counted: attention does 3\d\.\d% of the work .* 8 sequences/;
    for (const question of questions) {
      expect((await cli(...question)).stdout).toMatch(counted);
      const answer = JSON.parse((await cli("--json", ...question)).stdout) as { documents: string };
      expect(answer.documents).toMatch(counted);
    }
    // Every length of a sweep is of one kind, so that they can be compared.
    const lengths = ["what-if", job, "--axis", "sequence", "--values", "512,1024"] as const;
    expect((await cli(...lengths)).stdout).toMatch(/Packed documents are not counted/);
    rmSync(text);
    for (const question of questions)
      expect((await cli(...question)).stdout).toMatch(/not counted: .* an upper bound/);
  });

  it("explains two plans", async () => {
    expect((await cli("explain", JOB, "1", "3")).stdout).toMatch(
      /TIME OF A STEP[\s\S]*MEMORY OF THE FULLEST RANK[\s\S]*A is [\d.]+% faster/,
    );
  });

  it("explains one plan beside the best", async () => {
    expect((await cli("explain", JOB, "3")).stdout).toBe((await cli("explain", JOB, "3", "1")).stdout);
  });

  it("says of what-if which figures are estimates, as of a plan", async () => {
    const job = join(mkdtempSync(join(tmpdir(), "estimates-")), "quickstart.yaml");
    writeFileSync(job, readFileSync(QUICKSTART, "utf8").replace("1GiB", "80GB"));
    const asked = ["what-if", job, "--profile", "a800-128"] as const;
    const lines = (text: string) => text.trimEnd().split("\n").slice(-2);
    const planned = (await cli("plan", job, "--profile", "a800-128")).stdout;
    const estimated =
      /^Step times, token rates and MFU are (partly|wholly) estimated: profile a800-128 lacks /;
    expect(planned.split("\n").some((line) => estimated.test(line))).toBe(true);
    for (const question of [["--pareto"], ["--axis", "memory", "--values", "40GB"]]) {
      const said = lines((await cli(...asked, ...question)).stdout);
      expect(said[0]).toMatch(estimated);
      expect(planned).toContain(said.join("\n"));
      const answer = JSON.parse((await cli("--json", ...asked, ...question)).stdout) as object;
      expect(answer).toHaveProperty("estimates.missing");
    }
    for (const question of [
      ["--axis", "nodes", "--values", "1,2,4"],
      ["--deadline", "30d", "--tokens", "1e9", "--values", "1,2"],
    ]) {
      const said = lines((await cli(...asked, ...question)).stdout);
      expect(said[0]).toMatch(estimated);
      expect(said[1]).toContain(
        "measures them on the cluster itself, for the cluster.nodes of the job only.",
      );
    }
    expect(lines((await cli(...asked, "--largest-sequence")).stdout)[1]).toContain(
      "for the sequenceLengthTokens and globalBatchTokens of the job only.",
    );
    const none = [...asked, "--axis", "nodes", "--values", "1000"];
    expect((await cli(...none)).stdout).not.toContain("estimated");
  });

  it("searches once for two ranks, and predicts these plans only", async () => {
    const searches = vi.spyOn(CostModel.prototype, "sliceTimes");
    const predictions = vi.spyOn(CostModel.prototype, "predict");
    await cli("plan", JOB, "--top", "1");
    const once = searches.mock.calls.length;
    predictions.mockClear();
    searches.mockClear();
    expect((await cli("explain", JOB, "2", "60")).status).toBe(0);
    expect(predictions.mock.calls.length).toBeLessThanOrEqual(4);
    expect(searches.mock.calls.length).toBeLessThan(1.5 * once);
    vi.restoreAllMocks();
  });

  it("gives a reason for near plans, and no raw numbers of bytes", async () => {
    const { stdout } = await cli("explain", JOB);
    expect(stdout).toMatch(
      /A is 0\.0[1-9]% faster \(.* a step\): it saves .* of .*, and pays .* [AB] needs [\d.]+ [GM]iB less memory \([a-z]+/i,
    );
    expect(stdout).toMatch(/The profile says no spread/);
    const longest = await cli("what-if", JOB, "--largest-sequence", "--unit", "262144");
    expect(longest.stdout).toMatch(
      /longest sequence: [\d,]+ tokens \([\d.]+[kM]\)[\s\S]*needs at least [\d.]+ GiB a GPU, [\d.]+ [KMG]iB more than the 74\.5 GiB/,
    );
    expect(longest.stdout).not.toMatch(/bytes/);
  });

  it("names --sequences where the job's plan does not divide a step of one", async () => {
    const job = join(mkdtempSync(join(tmpdir(), "internevo-advice-")), "fixed.yaml");
    writeFileSync(job, `${readFileSync(JOB, "utf8")}\nplan: "dp2"\n`);
    const ask = ["what-if", job, "--largest-sequence", "--unit", "262144"];
    const none = await cli(...ask);
    expect(none.status).toBe(3);
    expect(none.stdout).toMatch(
      /^the job's plan \(dataParallel 2\) does not divide a step of 1 sequence over \d+ GPUs\n→ give --sequences 2,/,
    );
    expect((await cli(...ask, "--sequences", "2")).stdout).toMatch(/^longest sequence/);
  });

  it("says that no plan fits, and what binds, where a rank is asked of a job without plans", async () => {
    const directory = mkdtempSync(join(tmpdir(), "internevo-advice-"));
    const tiny = join(directory, "tiny.yaml");
    writeFileSync(tiny, readFileSync(JOB, "utf8").replace("memoryPerGpu: 80GB", "memoryPerGpu: 1GB"));
    for (const command of [
      ["explain", tiny],
      ["why-not", tiny, "1"],
      ["memory", tiny],
      ["export", tiny, "--framework", "megatron"],
    ]) {
      const { status, stderr } = await cli(...command);
      expect(stderr, command[0]).toMatch(
        /no plan fits 953\.7 MiB a GPU[\s\S]*cluster\.memoryPerGpu.*needs is [\d.]+ GiB[\s\S]*→ /,
      );
      expect(status, command[0]).toBe(3);
    }
    rmSync(directory, { recursive: true });
  });

  it("points to larger clusters where no deadline is met", async () => {
    const { status, stdout } = await cli("what-if", JOB, "--deadline", "10d", "--tokens", "2e12");
    expect(status).toBe(3);
    expect(stdout).toMatch(
      /no cluster of 1, 2, 4, 8 or 16 nodes meets the deadline: the fastest, of 16 nodes, takes [\d dh]+, /,
    );
    expect(stdout).toMatch(
      /, and the deadline is 10 d\.\nAt perfect scaling the deadline takes \d+ nodes, and more in practice: /,
    );
    expect(stdout).toMatch(/ in practice: ask for --values \d+\.\./);
  });

  it("answers what-if as CSV that other programs read", async () => {
    const { stdout } = await cli("what-if", JOB, "--axis", "sequence", "--values", "8k..32k", "--csv");
    const lines = stdout.trim().split("\n");
    expect(lines[0]).toMatch(/^sequence,tokensPerSecond,foundToFit,stepTimeSeconds,/);
    expect(lines.slice(1).map((line) => Number(line.split(",")[0]))).toEqual([8192, 16384, 32768]);
    for (const line of lines.slice(1)) expect(Number(line.split(",")[1])).toBeGreaterThan(0);
  });

  it("draws what-if: a dot for each plan, a cross where none fits", async () => {
    const file = join(mkdtempSync(join(tmpdir(), "internevo-what-if-")), "sweep.svg");
    const { stderr } = await cli(
      "what-if",
      JOB,
      "--axis",
      "sequence",
      "--values",
      "16k,32k,16m",
      "--svg",
      file,
    );
    expect(stderr).toContain(file);
    const svg = readFileSync(file, "utf8");
    expect(svg.match(/<circle /g)?.length).toBe(4);
    expect(svg.match(/class="none"/g)?.length).toBe(2);
    expect(svg).toMatch(/>16k<.*>32k<.*>16M</s);
    const near = await cli(
      "what-if",
      JOB,
      "--axis",
      "memory",
      "--values",
      "20GB,79GB,80GB,81GB,141GB",
      "--svg",
      file,
    );
    expect(near.status).toBe(0);
    // Labels of neighbours that would cover one another are left out; the first and the last are there.
    const labels = [
      ...readFileSync(file, "utf8").matchAll(/<text class="middle dim" x="([\d.]+)" y="[\d.]+">([^<]+)</g),
    ].map(([, x, text]) => ({ x: Number(x), half: ((text ?? "").length * 7) / 2, text }));
    expect(labels.length).toBeGreaterThan(1);
    expect(labels[0]?.text).toBe("18.6 GiB");
    expect(labels.at(-1)?.text).toBe("131.3 GiB");
    for (let i = 1; i < labels.length; i += 1)
      expect((labels[i]?.x ?? 0) - (labels[i]?.half ?? 0)).toBeGreaterThan(
        (labels[i - 1]?.x ?? 0) + (labels[i - 1]?.half ?? 0),
      );
    for (const { x, half } of labels) expect(x + half).toBeLessThanOrEqual(860);
    await cli("what-if", JOB, "--deadline", "10d", "--tokens", "2e12", "--svg", file);
    // What a limit is called stands above the panel, where no curve runs.
    expect(readFileSync(file, "utf8")).toMatch(/class="end limit-label" x="812" y="82">– – deadline</);
    expect(svg).not.toMatch(/NaN|Infinity|undefined/);
    rmSync(dirname(file), { recursive: true });
    expect((await cli("what-if", JOB, "--largest-sequence", "--svg", file)).stderr).toMatch(
      /--svg .*has nothing to draw/,
    );
  });

  it("fixes fields of the plans that every command searches", async () => {
    const best = async (...args: string[]) =>
      JSON.parse((await cli("--json", ...args, "--fix", "tp=8,pp=2")).stdout) as Record<string, never>;
    const plan = (await best("plan", JOB, "--top", "1"))["candidates"]?.[0]?.["plan"];
    expect(plan).toMatchObject({ tensorParallel: 8, pipelineParallel: 2 });
    expect((await best("explain", JOB, "1", "2"))["a"]?.["plan"]).toEqual(plan);
    expect((await best("simulate", JOB))["plan"]).toEqual(plan);
    expect((await best("export", JOB, "--framework", "megatron"))["asked"]).toEqual(plan);
    const part = JSON.parse((await cli("--json", "why-not", JOB, "tp8,pp2")).stdout) as Record<string, never>;
    expect(part["plan"]).toEqual(plan);
    expect(part["standing"]?.["best"]?.["plan"]).not.toEqual(plan);
    const swept = await best("what-if", JOB, "--axis", "memory", "--values", "80GB");
    expect(swept["rows"]?.[0]?.["best"]?.["plan"]).toEqual(plan);
    expect((await cli("plan", JOB, "--fix", "tp=8,sp=4")).stdout).toMatch(
      /has tensorParallel 8 and sequenceParallel 4 together: there are plans if you leave tensorParallel \(4 is possible\)/,
    );
  });

  it("says in the same words what no plan has, whichever command searches", async () => {
    const folder = mkdtempSync(join(tmpdir(), "odd-"));
    const odd = join(folder, "odd.json");
    writeFileSync(
      odd,
      JSON.stringify({
        name: "odd",
        model: "llama-7b",
        sequenceLengthTokens: 4096,
        globalBatchTokens: 192 * 4096,
        // 24 ranks: 3 divides them, and not a sequence.
        cluster: { nodes: 3, gpusPerNode: 8, memoryPerGpu: "80GB", profile: "a800-128" },
      }),
    );
    const words =
      /has tensorParallel 3: it needs as many sequenceParallel, and sequenceLengthTokens 4096 is not divisible by sequenceParallel 3; the nearest possible: 2 or 4/;
    expect((await cli("plan", odd, "--fix", "tp=3")).stdout).toMatch(words);
    for (const asked of [
      ["why-not", odd, "tp3"],
      ["memory", odd, "--fix", "tp=3"],
    ]) {
      const { status, stderr } = await cli(...asked);
      expect(status).not.toBe(0);
      expect(stderr).toMatch(words);
      expect(stderr).toMatch(/→ give another value, or leave it free/);
      expect(stderr).not.toMatch(/sequence-not-divisible/);
    }
    rmSync(folder, { recursive: true });
  });

  it("compares kinds of GPUs by their estimated profiles, each with its own memory", async () => {
    const { status, stdout } = await cli("what-if", JOB, "--gpu", "H100, l40s", "--headroom", "10%");
    expect(status).toBe(0);
    expect(stdout).toMatch(/GPU +OF .*FROM – TO/);
    expect(stdout).toMatch(/\*estimated\* from published figures/);
    const { rows } = JSON.parse(
      (await cli("--json", "what-if", JOB, "--gpu", "h100,l40s", "--headroom", "10%")).stdout,
    ) as {
      rows: { gpu: string; memoryPerGpuBytes: number; best: { predicted: { peakMemoryBytes: number } } }[];
    };
    expect(rows.map(({ gpu }) => gpu)).toEqual(["h100", "l40s"]);
    for (const { memoryPerGpuBytes, best } of rows)
      expect(best.predicted.peakMemoryBytes).toBeLessThanOrEqual(0.9 * memoryPerGpuBytes);
    expect((await cli("what-if", JOB, "--gpu", "h10")).stderr).toMatch(
      /--gpu .*"h10"[\s\S]*did you mean h100\?/,
    );
    expect((await cli("what-if", JOB, "--gpu", "h100", "--profile", "a800-128")).stderr).toMatch(
      /--profile does not belong to --gpu/,
    );
  });

  it("varies how fast GPUs compute", async () => {
    const ask = ["--json", "what-if", JOB, "--compute-speed", "1,2"];
    const { axis, rows } = JSON.parse((await cli(...ask)).stdout) as {
      axis: string;
      rows: { best: { predicted: { stepTimeSeconds: number } } }[];
    };
    expect(axis).toBe("compute-speed");
    const [own, twice] = rows.map(({ best }) => best.predicted.stepTimeSeconds) as [number, number];
    expect(twice).toBeLessThan(own);
    expect(twice).toBeGreaterThan(own / 2);
    expect((await cli("what-if", JOB, "--compute-speed", "1", "--values", "2")).stderr).toMatch(
      /is given beside --values/,
    );
    expect((await cli("what-if", JOB, "--compute-speed", "0")).stderr).toMatch(/is not a positive number/);
  });

  it("marks an estimated profile in every answer", async () => {
    const asked = ["--profile", "estimated:h100"];
    for (const args of [
      ["plan", JOB],
      ["why-not", JOB, "1"],
      ["explain", JOB],
      ["simulate", JOB],
      ["profile", "show", "estimated:h100"],
    ])
      expect((await cli(...args, ...(args[0] === "profile" ? [] : asked))).stdout, args[0]).toMatch(
        /estimated:h100 is \*estimated\* from published figures, not measured/,
      );
    expect((await cli("plan", JOB, "--profile", "h100")).stderr).toMatch(/did you mean estimated:h100\?/);
  });

  it("lists single plans as well as families", async () => {
    const { stdout } = await cli("--json", "plan", JOB, "--top", "3", "--show", "plans");
    const { plans, candidates } = JSON.parse(stdout) as Record<string, { rank: number; plan: object }[]>;
    expect(plans?.map(({ rank }) => rank)).toEqual([1, 2, 3]);
    expect(plans?.[0]?.plan).toEqual(candidates?.[0]?.plan);
    // Plans of one family are next to each other, which the list of families cannot show.
    expect(plans?.map(({ plan }) => plan)).not.toEqual(candidates?.map(({ plan }) => plan));
    expect((await cli("plan", JOB, "--top", "3", "--show", "plans")).stdout).toMatch(
      /Single plans, whatever/,
    );
  });

  it("keeps headroom free when it is asked to, and says so when it is not", async () => {
    const longest = async (...more: string[]) => {
      const ask = ["what-if", JOB, "--largest-sequence", "--unit", "262144", ...more];
      return {
        text: (await cli(...ask)).stdout,
        answer: JSON.parse((await cli("--json", ...ask)).stdout) as {
          sequenceLengthTokens: number;
          globalBatchTokens: number;
          best: { predicted: { peakMemoryBytes: number } };
        },
      };
    };
    const [full, roomy] = [await longest(), await longest("--headroom", "20%")];
    expect(full.text).toMatch(
      /leaves [\d.]+ [KMG]iB of the 74\.5 GiB free: no headroom is kept; --headroom 5%/,
    );
    expect(roomy.text).toMatch(/of the 59\.6 GiB free: --headroom keeps another 14\.9 GiB free/);
    expect(full.answer.globalBatchTokens).toBe(full.answer.sequenceLengthTokens);
    const own = await longest("--sequences", "2");
    expect(own.answer.globalBatchTokens).toBe(2 * own.answer.sequenceLengthTokens);
    expect(own.text).toMatch(
      /\nits step is [\d,]+ tokens \(.*M\), not the job's 4,194,304 tokens \(4M\): --seq/,
    );
    expect(roomy.answer.sequenceLengthTokens).toBeLessThan(full.answer.sequenceLengthTokens);
    expect(roomy.answer.best.predicted.peakMemoryBytes).toBeLessThanOrEqual(0.8 * 80e9);
    expect((await cli("plan", JOB, "--top", "1", "--headroom", "16GB")).stdout).toContain("59.6 GiB a GPU");
    for (const wrong of ["100%", "5", "-1GB", "much"])
      expect((await cli("plan", JOB, "--headroom", wrong)).stderr, wrong).toMatch(/give a share below 100%/);
    expect((await cli("plan", JOB, "--headroom", "80GB")).stderr).toMatch(/leaves no memory/);
    expect(
      (await cli("what-if", JOB, "--axis", "memory", "--values", "40GB", "--headroom", "5%")).stderr,
    ).toMatch(/--headroom .*does not belong to the axis memory/);
  });

  it("draws fronts that span decades on logarithmic axes", () => {
    const chart = (ys: number[]) =>
      chartSvg({
        title: "t",
        subtitle: "s",
        xLabel: "x",
        formatX: String,
        logX: true,
        panels: [
          {
            label: "y",
            format: String,
            logWhereWide: true,
            points: ys.map((y, index) => ({ x: 10 ** index, y, title: String(y) })),
          },
        ],
      });
    const height = (svg: string) =>
      [...svg.matchAll(/<circle class="dot" cx="[\d.]+" cy="([\d.]+)"/g)].map(([, y]) => Number(y));
    const [first, second, third] = height(chart([10, 100, 1000])) as [number, number, number];
    expect(first - second).toBeCloseTo(second - third, 0);
    const [low, middle, high] = height(chart([100, 200, 300])) as [number, number, number];
    expect(low - middle).toBeCloseTo(middle - high, 0);
    expect(chart([10, 100, 1000])).not.toMatch(/NaN|Infinity/);
    const wide = [
      ...chart([10, 1e3, 1e5, 1e7, 1e9]).matchAll(
        /<text class="middle dim" x="([\d.]+)" y="[\d.]+">([^<]+)</g,
      ),
    ];
    expect(wide.length).toBeGreaterThan(2);
    expect(wide.length).toBeLessThanOrEqual(8);
  });

  it("needs one question, and says what a bad value is", async () => {
    const none = await cli("what-if", JOB);
    expect(none.status).toBe(2);
    expect(none.stderr).toMatch(
      /answers one question at a time[\s\S]*--pareto, --deadline: none of them is given/,
    );
    const bad = await cli("what-if", JOB, "--axis", "nodes", "--values", "4,x");
    expect(bad.status).toBe(2);
    expect(bad.stderr).toMatch(/"x" is no value of nodes/);
  });

  it("refuses values that no job can have, and more points than anyone waits for, by field, value and remedy", async () => {
    const refused: [string, string, RegExp][] = [
      ["nodes", "0", /"0" is no value of nodes/],
      ["nodes", "-1", /"-1" is no value/],
      ["nodes", "1e308", /cannot take 1e\+308[\s\S]*from 1 to 125000/],
      ["nodes", "1.5", /cannot take 1\.5/],
      ["sequence", "1152921504606846976", /cannot take 1152921504606847000[\s\S]*from 1 to 1099511627776/],
      ["sequence", "0x10", /"0x10" is no value/],
      ["sequence", "4,096k", /"096k" is no value/],
      ["sequence", "4k,", /"" is no value/],
      ["batch", "1e999", /"1e999" is no value/],
      ["memory", "-1GB", /"-1GB" is not a memory size/],
      ["memory", "5000TiB", /is more than 1024.0 TiB/],
      ["inter-node-bandwidth", "1e308", /cannot take 1e\+308/],
      ["nodes", "16..1", /"16\.\.1" is no range/],
      ["nodes", "1..2..3", /"1\.\.2\.\.3" is no value/],
      ["nodes", "..", /"" is no value/],
      ["inter-node-bandwidth", "1e-300..1", /is no range|cannot take|more than 1000/],
      ["nodes", Array.from({ length: 1001 }, (_, i) => i + 1).join(","), /more than 1000/],
    ];
    for (const [axis, values, message] of refused) {
      const { status, stdout, stderr } = await cli("what-if", JOB, "--axis", axis, "--values", values);
      expect(stderr, values.slice(0, 40)).toMatch(message);
      expect(stderr, values.slice(0, 40)).toMatch(/→ /);
      expect([status, stdout]).toEqual([2, ""]);
    }
    for (const [option, value] of [
      ["--tokens", "NaN"],
      ["--tokens", "-1"],
      ["--deadline", "0d"],
      ["--deadline", "1e9y"],
      ["--price", "-1"],
    ] as const) {
      expect(
        (await cli("what-if", JOB, "--deadline", "1d", "--tokens", "1e9", option, value)).status,
        `${option} ${value}`,
      ).toBe(2);
    }
    expect(
      (await cli("what-if", JOB, "--deadline", "1d", "--tokens", "1e9", "--values", "1e308")).stderr,
    ).toMatch(/cannot take 1e\+308/);
    expect((await cli("what-if", JOB, "--pareto", "--values", "1,2")).stderr).toMatch(
      /--values .*belongs to --axis/,
    );
  });

  it("writes a picture whole or not at all, and says where it cannot, before it plans", async () => {
    const directory = mkdtempSync(join(tmpdir(), "internevo-what-if-"));
    const ask = (file: string) => cli("what-if", JOB, "--axis", "nodes", "--values", "16", "--svg", file);
    const missing = await ask(join(directory, "absent", "a.svg"));
    expect([missing.status, missing.stdout]).toEqual([2, ""]);
    expect(missing.stderr).toMatch(/--svg .*absent[\s\S]*→ /);
    mkdirSync(join(directory, "folder"));
    const folder = await ask(join(directory, "folder"));
    expect([folder.status, folder.stdout]).toEqual([2, ""]);
    expect(folder.stderr).toMatch(/is a directory[\s\S]*→ /);
    writeFileSync(join(directory, "a.svg"), "old");
    expect((await ask(join(directory, "a.svg"))).status).toBe(0);
    expect(readFileSync(join(directory, "a.svg"), "utf8")).toMatch(/^<svg/);
    expect(readdirSync(directory).sort()).toEqual(["a.svg", "folder"]);
    rmSync(directory, { recursive: true });
  });

  it("reads values", () => {
    expect(axisValues("sequence", "4k,5000,8k..32k")).toEqual([4096, 5000, 8192, 16384, 32768]);
    expect(axisValues("memory", "40GB,80GiB")).toEqual([40e9, 80 * 2 ** 30]);
    expect(axisValues("batch", "1M,2m")).toEqual([2 ** 20, 2 ** 21]);
    expect(() => axisValues("memory", "40,80")).toThrow(
      expect.objectContaining({
        details: [
          {
            field: "--values",
            value: "40",
            message: "is 40 bytes",
            remedy: "did you mean 40GB? For bytes, write 40B",
          },
        ],
      }),
    );
    expect(axisValues("inter-node-bandwidth", "0.5,2")).toEqual([0.5, 2]);
    expect(() => axisValues("nodes", "-1")).toThrow(/"-1" is no value of nodes/);
  });
});
