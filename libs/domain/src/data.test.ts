import fc from "fast-check";
import { refusalOf as problemOf, wholeJobFile as job } from "@internevo/test-kit/refused-job";
import { describe, expect, it } from "vitest";
import { posix } from "node:path";
import { MAXIMUM_PATHS, plainPath, sharesOf } from "./data.ts";
import { resolveJob } from "./job-file.ts";

it("two ways to write a path are the same text", () => {
  const part = fc.constantFrom("a", "b.txt", ".", "..", "", "...");
  fc.assert(
    fc.property(fc.boolean(), fc.array(part, { minLength: 1 }), (isAbsolute, parts) => {
      const path = `${isAbsolute ? "/" : ""}${parts.join("/")}`;
      const normal = posix.normalize(path).replace(/(?<=.)\/$/, "");
      expect(plainPath(path)).toBe(normal === "." ? "" : normal);
    }),
  );
});

describe("the paths of a job", () => {
  const text = (name: string, count: number) => ({
    format: "text",
    paths: Array.from({ length: count }, (_, index) => `/${name}/${index}`),
  });
  const source = (name: string, count: number) => ({ ...text(name, count), weight: 1 });
  const mixture = (...sources: object[]) => ({ format: "mixture", sources });
  const half = MAXIMUM_PATHS / 2;

  it("may be so many in all", () => {
    const validation = { data: text("c", half - 1) };
    const data = mixture(source("a", half), { format: "tokens", path: "/b", weight: 1 });
    expect(resolveJob(job({ data, validation }))).toMatchObject({ data, validation });
  });

  it.each([
    ["one list", { data: text("a", MAXIMUM_PATHS + 1) }, "data.paths", MAXIMUM_PATHS + 1],
    [
      "all sources",
      { data: mixture(source("a", half), source("b", half), source("c", 3)) },
      "data.sources.2.paths",
      MAXIMUM_PATHS + 3,
    ],
    [
      "held-out data too",
      { data: text("a", MAXIMUM_PATHS), validation: { data: { format: "tokens", path: "/b" } } },
      "validation.data.path",
      MAXIMUM_PATHS + 1,
    ],
  ])("are no more: of %s", (_, over, field, value) => {
    expect(problemOf(job(over)).details).toEqual([
      {
        field,
        value,
        message: `brings the paths of the job to ${value.toLocaleString("en")}, and it may name 10,000 in all`,
        remedy: expect.stringMatching(/^name at most 10,000 paths/),
      },
    ]);
  });

  it("are counted before any is looked at", () => {
    let looks = 0;
    const paths = new Proxy(Array<string>(MAXIMUM_PATHS + 1).fill("/a"), {
      get: (list, key, receiver) => {
        looks += 1;
        return Reflect.get(list, key, receiver) as unknown;
      },
    });
    expect(problemOf(job({ data: { format: "text", paths } })).details).toHaveLength(1);
    expect(looks).toBeLessThan(10);
  });

  it("are told to be doubles of another source so often and no more", () => {
    const data = mixture(source("a", 1000), source("a", 1000));
    expect(problemOf(job({ data })).details).toHaveLength(20);
  });
});

describe("a mixture of data", () => {
  const tokens = (path: string, weight: number) => ({ format: "tokens", path, weight });
  const mixture = (...sources: unknown[]) => job({ data: { format: "mixture", sources } });
  const faultsOf = (written: unknown) => problemOf(written).details.map(({ field }) => field);

  it("has weights of any size", () => {
    const sources = [tokens("/a", 0.07), { format: "text", paths: ["/b"], weight: 3e9 }, tokens("/c", 5e8)];
    expect(faultsOf(mixture(...sources))).toEqual(["data.sources.0.weight"]);
    expect(resolveJob(mixture(...sources.slice(1))).data).toEqual({
      format: "mixture",
      sources: sources.slice(1),
    });
  });

  it.each([
    ["no source", mixture(), ["data.sources"]],
    ["a weight of nothing", mixture(tokens("/a", 1), tokens("/b", 0)), ["data.sources.1.weight"]],
    ["a source without a weight", mixture({ format: "tokens", path: "/a" }), ["data.sources.0.weight"]],
    [
      "packing of a source's own",
      mixture({ ...tokens("/a", 1), packing: "documents" }),
      ["data.sources.0.packing"],
    ],
    ["a mixture in a mixture", mixture({ format: "mixture", sources: [] }), ["data.sources.0.format"]],
    ["one file in two sources", mixture(tokens("/a", 1), tokens("/a", 2)), ["data.sources.1"]],
    [
      "held-out data that is a source by another name",
      {
        ...mixture({ format: "megatron", path: "/a", weight: 1 }),
        validation: { data: { format: "megatron", path: "/a.bin" } },
      },
      ["validation.data.path"],
    ],
    [
      "held-out data that is a source",
      { ...mixture(tokens("/a", 1)), validation: { data: { format: "tokens", path: "/a" } } },
      ["validation.data.path"],
    ],
    [
      "held-out data that is a mixture",
      { ...mixture(tokens("/a", 1)), validation: { data: { format: "mixture", sources: [] } } },
      ["validation.data.format"],
    ],
    [
      "text that the vocabulary is too small for",
      {
        ...mixture(tokens("/a", 1), { format: "text", paths: ["/b"], weight: 1 }),
        model: { base: "llama-7b", vocabularySize: 200 },
      },
      ["model.vocabularySize"],
    ],
  ])("is refused with %s", (_what, written, fields) => expect(faultsOf(written)).toEqual(fields));

  it("gives each source its share of a cycle, to one sequence", () => {
    fc.assert(
      fc.property(
        fc.array(fc.double({ min: 1e-3, max: 1e6, noNaN: true }), { minLength: 1, maxLength: 100 }),
        (weights) => {
          const sum = weights.reduce((total, weight) => total + weight, 0);
          const shares = sharesOf(weights);
          expect(shares.reduce((total, share) => total + share, 0)).toBe(10_000);
          for (const [index, share] of shares.entries())
            expect(Math.abs(share - ((weights[index] as number) / sum) * 10_000)).toBeLessThan(1);
        },
      ),
    );
    expect(sharesOf([7, 3])).toEqual([7000, 3000]);
    expect(sharesOf([1, 1, 1])).toEqual([3334, 3333, 3333]);
  });
});
