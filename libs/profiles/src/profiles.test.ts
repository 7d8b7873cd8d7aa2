import { shippedProfile } from "@internevo/cost-model";
import { ProblemError, type Collective, type Placement, type Profile } from "@internevo/domain";
import { assert, constantFrom, double, integer, property, record, uniqueArray } from "fast-check";
import { describe, expect, it } from "vitest";
import { curvesCsv, diffProfiles, parseCurvesCsv, parseNcclTests, withCurves } from "./index.ts";

const base = shippedProfile("a800-128");

/** A table as nccl-tests prints it, for `ranks` on `hosts`. */
function table({
  program = "all_gather",
  ranks = 16,
  hosts = 2,
  named = true,
  rows = [
    "     1048576         16384     float    none      -1    " +
      "58.10   18.05   16.92      0    57.61   18.20   17.06      0",
    "    67108864       1048576     float    none      -1   " +
      "412.3  162.77  152.60      0    410.9  163.32  153.12      0",
  ],
  verdict = "0 OK",
} = {}): string {
  return [
    "# nccl-tests version 2.17.6 nccl-headers=22703 nccl-library=22703",
    ...(named ? [`# Collective test starting: ${program}_perf`] : []),
    "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 67108864 step: 64(factor) " +
      "warmup iters: 1 iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0",
    "#",
    "# Using devices",
    ...Array.from(
      { length: ranks },
      (_, rank) =>
        `#  Rank ${String(rank).padStart(2)} Group  0 Pid ${String(100 + rank).padStart(6)} on node-${Math.floor((rank * hosts) / ranks)} device ${rank % 8} [0000:0${rank % 8}:00] NVIDIA H100 80GB HBM3`,
    ),
    "#",
    "#                                                         " +
      "     out-of-place                       in-place          ",
    "#       size         count      type   redop    root     " +
      "time   algbw   busbw  #wrong     time   algbw   busbw  #wrong",
    "#        (B)    (elements)                               " +
      "(us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)        ",
    ...rows,
    `# Out of bounds values : ${verdict}`,
    "# Avg bus bandwidth    : 84.92",
    "#",
  ].join("\n");
}

const fault = (act: () => unknown): string => {
  try {
    act();
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    return [error.message, ...error.details.map(({ remedy }) => remedy)].join(" → ");
  }
  throw new Error("nothing was refused");
};

describe("nccl-tests", () => {
  it("gives a curve in seconds, with group and placement from its devices", () => {
    expect(parseNcclTests(table(), { file: "gather.txt" })).toEqual({
      curves: [
        {
          op: "all-gather",
          groupSize: 16,
          placement: "mixed",
          points: [
            { bytes: 1048576, medianSeconds: 58.1e-6 },
            { bytes: 67108864, medianSeconds: 412.3e-6 },
          ],
        },
      ],
      versions: { nccl: "22703" },
      notes: [expect.stringMatching(/gather\.txt: nccl-tests gives the mean.*out-of-place times/)],
    });
    expect(parseNcclTests(table({ ranks: 8, hosts: 1 }), { file: "f" }).curves[0]).toMatchObject({
      groupSize: 8,
      placement: "intra-node",
    });
    expect(
      parseNcclTests(table({ ranks: 4, hosts: 4, program: "alltoall" }), { file: "f" }).curves[0],
    ).toMatchObject({ op: "all-to-all", groupSize: 4, placement: "inter-node" });
    expect(
      parseNcclTests(table({ program: "sendrecv", ranks: 8, hosts: 1 }), { file: "f" }).curves[0],
    ).toMatchObject({ op: "point-to-point", groupSize: 2 });
  });

  it("reads its report in JSON to the same curve", () => {
    const report = {
      version: 2,
      args: ["/opt/nccl-tests/build/all_gather_perf", "-J", "x"],
      nccl_version: 22703,
      config: {
        devices: Array.from({ length: 16 }, (_, rank) => ({ rank, group: 0, hostname: `node-${rank >> 3}` })),
      },
      results: [
        { size: 1048576, out_of_place: { time: 58.1, nwrong: 0 }, in_place: { time: 57, nwrong: "nan" } },
        { size: 67108864, out_of_place: { time: 412.3, nwrong: null }, in_place: null },
      ],
    };
    expect(parseNcclTests(JSON.stringify(report), { file: "f" })).toEqual(
      parseNcclTests(table(), { file: "f" }),
    );
  });

  it("refuses what is no measurement, and says what to do", () => {
    expect(fault(() => parseNcclTests(table({ named: false }), { file: "f" }))).toMatch(
      /program is not named in the output → .*--op/,
    );
    expect(
      parseNcclTests(table({ named: false }), { file: "f", program: "reduce_scatter_perf" }).curves[0]?.op,
    ).toBe("reduce-scatter");
    expect(fault(() => parseNcclTests(table({ program: "hypercube" }), { file: "f" }))).toMatch(
      /measures nothing that plans use/,
    );
    expect(fault(() => parseNcclTests(table({ ranks: 1, hosts: 1 }), { file: "f" }))).toMatch(
      /a group of one rank/,
    );
    expect(
      fault(() =>
        parseNcclTests(
          table({ rows: ["1048576 16384 float none -1 58.10 18.05 16.92 3 57.61 18.20 17.06 0"] }),
          { file: "f" },
        ),
      ),
    ).toMatch(/line 26 counts wrong values/);
    // In place, and of a size that gives no point, data is as wrong.
    for (const row of [
      "1048576 16384 float none -1 58.10 18.05 16.92 0 57.61 18.20 17.06 7",
      "0 0 float none -1 58.10 18.05 16.92 N/A 57.61 18.20 17.06 7",
    ])
      expect(fault(() => parseNcclTests(table({ rows: [row] }), { file: "f" }))).toMatch(
        /line 26 counts wrong values/,
      );
    for (const verdict of ["5 FAILED", "5", "0 FAILED"])
      expect(fault(() => parseNcclTests(table({ verdict }), { file: "f" }))).toMatch(
        /line 28 says that data arrived wrong.*→ mend the cluster/,
      );
    expect(fault(() => parseNcclTests(table({ rows: ["1048576 16384 float"] }), { file: "f" }))).toMatch(
      /line \d+ is cut off/,
    );
    expect(fault(() => parseNcclTests("hello", { file: "f" }))).toMatch(/this is no output of nccl-tests/);
    expect(fault(() => parseNcclTests('{ "args": [', { file: "f" }))).toMatch(/JSON is broken/);
    expect(fault(() => parseNcclTests("{}", { file: "f", program: "alltoall_perf" }))).toMatch(
      /devices are not listed/,
    );
  });

  it("refuses what is damaged, and never reads less than the file says", () => {
    const row = (text: string) => fault(() => parseNcclTests(table({ rows: [text] }), { file: "f" }));
    // Numbers of another locale, cut rows, times that are none.
    expect(row("1,048,576 16384 float none -1 58.10 18.05 16.92 0 57.61 18.20 17.06 0")).toMatch(
      /line \d+, size is no whole number of bytes → .*LC_ALL=C/,
    );
    expect(row("1048576 16384 float none -1 58,10 18,05 16,92 0 57,61 18,20 17,06 0")).toMatch(
      /line \d+, time is no time in microseconds → .*LC_ALL=C/,
    );
    expect(row("-1048576 16384 float none -1 58.10 18.05 16.92 0 57.61 18.20 17.06 0")).toMatch(
      /line \d+, size is no whole number/,
    );
    expect(row("99999999999999999999 16384 float none -1 58.10 18.05 16.92 0 57.61 18.20 17.06 0")).toMatch(
      /line \d+, size is no whole number/,
    );
    expect(row("1048576 16384 float none -1 58.")).toMatch(/line \d+ is cut off/);
    for (const time of ["nan", "-nan", "inf", "-1", "0.00", "N/A", "1e300", "0x10"])
      expect(row(`1048576 16384 float none -1 ${time} 18.05 16.92 0 57.61 18.20 17.06 0`), time).toMatch(
        /line \d+, time is no time/,
      );
    expect(fault(() => parseNcclTests(`${table()}\n${table()}`, { file: "f" }))).toMatch(
      /devices list rank 0 .*more than one run → give one file a run/,
    );
    // Lines of a launcher or of NCCL's log are no rows.
    expect(
      parseNcclTests(
        table({ ranks: 8, hosts: 1 }).replace(
          "# Out of",
          "node-0:100:100 [0] NCCL INFO 12 coll channels\n10.0.0.1 said hello\n2024-01-01 12:00:00 note\n# Out of",
        ),
        { file: "f" },
      ).curves[0]?.points.length,
    ).toBe(2);
  });

  it("refuses a report of other shapes", () => {
    const report = (over: object) =>
      JSON.stringify({
        args: ["all_gather_perf"],
        config: { devices: [0, 1].map((rank) => ({ rank, group: 0, hostname: "a" })) },
        results: [{ size: 1024, out_of_place: { time: 5, nwrong: 0 } }],
        ...over,
      });
    expect(parseNcclTests(report({}), { file: "f" }).curves[0]).toMatchObject({
      groupSize: 2,
      points: [{ bytes: 1024, medianSeconds: 5e-6 }],
    });
    const broken: [object, RegExp][] = [
      [{ config: { devices: 5 } }, /devices/],
      [{ config: null }, /devices are not listed/],
      [{ config: { devices: [null, null] } }, /devices\.0/],
      [
        {
          config: {
            devices: [
              { group: 0, hostname: "a" },
              { group: "x", hostname: "a" },
            ],
          },
        },
        /devices\.1/,
      ],
      [{ config: { devices: [{ group: 0 }, { group: 0 }] } }, /devices\.0/],
      [{ results: 7 }, /results/],
      [{ results: [null] }, /results\.0/],
      [{ results: [{ size: "1024", out_of_place: { time: 5 } }] }, /results\.0, size/],
      [{ results: [{ size: -5, out_of_place: { time: 5 } }] }, /results\.0, size/],
      [{ results: [{ size: 1024, out_of_place: { time: null } }] }, /results\.0, time/],
      [{ results: [{ size: 1024, out_of_place: { time: "5" } }] }, /results\.0, time/],
      [{ results: [{ size: 1024, out_of_place: 9 }] }, /results\.0/],
      [{ results: [] }, /hold no size/],
      [{ args: [7] }, /not named/],
      [{ args: 7 }, /not named/],
      [{ results: [{ size: 1024, out_of_place: { time: 5, nwrong: 3 } }] }, /counts wrong values/],
      [
        { results: [{ size: 1024, out_of_place: { time: 5, nwrong: 0 }, in_place: { time: 5, nwrong: 3 } }] },
        /results\.0 counts wrong values/,
      ],
      [{ results: [{ size: 1, out_of_place: { time: null, nwrong: { toString: 5 } } }] }, /results\.0, time/],
      [{ out_of_bounds: { count: 5, okay: false } }, /out_of_bounds says that data arrived wrong/],
    ];
    for (const [over, message] of broken)
      expect(
        fault(() => parseNcclTests(report(over), { file: "f" })),
        JSON.stringify(over),
      ).toMatch(message);
    for (const text of ['{"a":1', "{} {}", `{"a":${"[".repeat(100_000)}`])
      expect(fault(() => parseNcclTests(text, { file: "f", program: "alltoall" }))).not.toBe("");
  });
});

const curve = record({
  op: constantFrom<Collective[]>("all-gather", "all-to-all"),
  groupSize: integer({ min: 2, max: 8 }),
  placement: constantFrom<Placement[]>("intra-node"),
  points: uniqueArray(
    record({
      bytes: integer({ min: 1, max: 2 ** 40 }),
      medianSeconds: double({ min: 1e-6, max: 10, noNaN: true }),
    }),
    { selector: ({ bytes }) => bytes, minLength: 1, maxLength: 5 },
  ),
});

describe("CSV", () => {
  it("is read as it was written", () => {
    assert(
      property(
        uniqueArray(curve, {
          selector: ({ op, groupSize }) => `${op} ${groupSize}`,
          minLength: 1,
          maxLength: 4,
        }),
        (curves) => {
          const sorted = curves.map((each) => ({
            ...each,
            points: [...each.points].sort((a, b) => a.bytes - b.bytes),
          }));
          expect(parseCurvesCsv(curvesCsv(curves), "f").curves).toEqual(sorted);
        },
      ),
    );
  });

  it("names line and column of what is wrong", () => {
    const head = "op,groupSize,placement,bytes,medianSeconds";
    expect(fault(() => parseCurvesCsv("op,bytes\n", "f"))).toMatch(
      /line 1 lacks the columns groupSize, placement, medianSeconds/,
    );
    expect(fault(() => parseCurvesCsv(`${head},GBps\n`, "f"))).toMatch(/no known column/);
    expect(fault(() => parseCurvesCsv(`${head}\n`, "f"))).toMatch(/there is no point/);
    expect(
      fault(() =>
        parseCurvesCsv(`${head}\nall-gather,8,intra-node,1024,1e-5\ngather,8,intra-node,1024,1e-5`, "f"),
      ),
    ).toMatch(/line 3, op is not known → use one of all-reduce/);
    for (const time of ["0", "-1", "NaN", "", "1e999", "fast"])
      expect(fault(() => parseCurvesCsv(`${head}\nall-gather,8,intra-node,1024,${time}`, "f"))).toMatch(
        /line 2, medianSeconds is no time/,
      );
    expect(fault(() => parseCurvesCsv(`${head}\nall-gather,8.5,intra-node,1024,1e-5`, "f"))).toMatch(
      /groupSize is no whole number/,
    );
    const row = (text: string) => fault(() => parseCurvesCsv(`${head}\n${text}\n`, "f"));
    expect(row("all-gather,8,intra-node,1024,1,5e-5")).toMatch(/line 2 has 6 values for 5 columns → .*comma/);
    expect(row("all-gather,8,intra-node,1024")).toMatch(/line 2 has 4 values for 5 columns/);
    expect(row("all-gather,8,intra-node,0x400,1e-5")).toMatch(/bytes is no whole number/);
    expect(row("all-gather,8,intra-node,1152921504606846976,1e-5")).toMatch(
      /line 2, bytes is no whole number from 1 to/,
    );
    expect(row("all-gather,1,intra-node,1024,1e-5")).toMatch(
      /line 2, groupSize is no whole number from 2 to/,
    );
    expect(row("all-gather,8,intra-node,1024,1e-300")).toMatch(/line 2, medianSeconds is no time/);
    expect(row("all-gather,8,intra-node,1024,1e-5\nall-gather,8,intra-node,1024,2e-5")).toMatch(
      /line 3, bytes is there twice.*line 2/,
    );
    expect(fault(() => parseCurvesCsv(`${head},op\n`, "f"))).toMatch(/names op twice/);
    expect(fault(() => parseCurvesCsv(head.replaceAll(",", ";"), "f"))).toMatch(/lacks the columns/);
    // Blank lines and other line ends are no faults; a number may have a fraction of none.
    expect(
      parseCurvesCsv(`\uFEFF${head}\r\n\r\nall-gather, 8 ,intra-node,1024,1e-5\r\n\r\n`, "f").curves[0]
        ?.points,
    ).toEqual([{ bytes: 1024, medianSeconds: 1e-5 }]);
  });
});

describe("importing into a profile", () => {
  const imported = {
    file: "gather.txt",
    ...parseNcclTests(table({ ranks: 8, hosts: 1 }), { file: "gather.txt" }),
  };

  it("replaces the curve of the same group, keeps the others, and says where it is from", () => {
    const merged = withCurves(base, [imported]);
    const same = (profile: Profile) =>
      profile.collectives.filter(
        ({ op, groupSize, placement }) =>
          op === "all-gather" && groupSize === 8 && placement === "intra-node",
      );
    expect(same(merged)).toEqual(imported.curves);
    expect(merged.collectives.length).toBe(base.collectives.length + (same(base).length === 0 ? 1 : 0));
    expect(merged.provenance.versions["nccl"]).toBe("22703");
    expect(merged.provenance.notes.join("\n")).toMatch(
      /1 curves of collectives were imported .*all-gather over 8 ranks, intra-node from gather\.txt/,
    );
  });

  it("takes names of files that a terminal would obey as text", () => {
    const merged = withCurves(base, [{ ...imported, file: "a\u001b[2J\nb.txt" }]);
    expect(merged.provenance.notes.join("")).toContain("a\\u001b[2J\\nb.txt");
  });

  it("refuses the same curve twice, and a group that the cluster cannot have", () => {
    expect(fault(() => withCurves(base, [imported, { ...imported, file: "again.txt" }]))).toMatch(
      /again\.txt: all-gather over 8 ranks, intra-node is in gather\.txt too/,
    );
    const large = { file: "f", ...parseNcclTests(table({ ranks: 32, hosts: 1 }), { file: "f" }) };
    expect(fault(() => withCurves(base, [large]))).toMatch(/groupSize is more than the 8 ranks/);
  });
});

describe("two profiles", () => {
  it("do not differ from themselves", () => {
    const difference = diffProfiles(base, base);
    expect(difference.stated).toEqual([]);
    expect([...difference.onlyInFirst, ...difference.onlyInSecond]).toEqual([]);
    expect(difference.collectives.length).toBe(base.collectives.length);
    for (const { ratio, furthest, beyondSpread } of [...difference.collectives, ...difference.modules])
      expect([ratio, furthest.ratio, beyondSpread]).toEqual([1, 1, 0]);
  });

  it("differ by what was slowed down, by how much, and beyond the spread where that is so", () => {
    const timed = (scale: number, spread: number): Profile => ({
      ...base,
      name: "timed",
      collectives: [
        {
          op: "all-gather",
          groupSize: 8,
          placement: "intra-node",
          points: [1024, 4096].map((bytes) => ({
            bytes,
            medianSeconds: bytes * 1e-8 * scale,
            p10Seconds: bytes * 1e-8 * scale * (1 - spread),
            p90Seconds: bytes * 1e-8 * scale * (1 + spread),
          })),
        },
      ],
    });
    const within = diffProfiles(timed(1, 0.2), timed(1.1, 0.2));
    expect(within.collectives[0]).toMatchObject({
      name: "all-gather over 8 ranks, intra-node",
      points: 2,
      beyondSpread: 0,
      withSpread: 2,
    });
    expect(within.collectives[0]?.ratio).toBeCloseTo(1.1, 12);
    expect(diffProfiles(timed(1, 0.02), timed(1.1, 0.02)).collectives[0]).toMatchObject({
      beyondSpread: 2,
      withSpread: 2,
    });
  });

  it("are compared between points where sizes differ, and never beyond them", () => {
    const of = (points: [number, number][]): Profile => ({
      ...base,
      collectives: [
        {
          op: "all-to-all",
          groupSize: 4,
          placement: "intra-node",
          points: points.map(([bytes, medianSeconds]) => ({ bytes, medianSeconds })),
        },
      ],
    });
    const change = diffProfiles(
      of([
        [1000, 1e-5],
        [4000, 4e-5],
        [64_000, 1],
      ]),
      of([
        [1000, 2e-5],
        [16_000, 32e-5],
      ]),
    ).collectives[0];
    expect(change?.points).toBe(2);
    expect(change?.ratio).toBeCloseTo(2, 9);
    expect(diffProfiles(of([[10, 1e-5]]), of([[1000, 2e-5]])).onlyInFirst).toEqual([
      "all-to-all over 4 ranks, intra-node (no common sizes)",
    ]);
  });

  it("are told apart by what they state and what only one has", () => {
    const other: Profile = {
      ...base,
      device: { ...base.device, runtimeBytes: base.device.runtimeBytes + 1 },
      collectives: base.collectives.slice(1),
      provenance: { ...base.provenance, versions: { nccl: "2" } },
    };
    const difference = diffProfiles(base, other);
    expect(difference.stated).toContainEqual({
      field: "device.runtimeBytes",
      before: base.device.runtimeBytes,
      after: base.device.runtimeBytes + 1,
    });
    expect(difference.stated).toContainEqual({
      field: "provenance.versions.nccl",
      before: base.provenance.versions["nccl"] ?? null,
      after: "2",
    });
    expect(difference.onlyInFirst.length).toBe(1);
    expect(difference.onlyInSecond).toEqual([]);
  });
});
