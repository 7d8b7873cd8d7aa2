import { describe, expect, it } from "vitest";
import { packageOf, undeclared } from "./declared-dependencies.ts";

const manifests = new Map<string, object>([
  ["package.json", { devDependencies: { vitest: "5" } }],
  [
    "libs/a/package.json",
    { name: "@x/a", dependencies: { "@x/b": "1" }, devDependencies: { "fast-check": "4" } },
  ],
]);
const importing = (source: string, ...modules: string[]) => [
  { source, dependencies: modules.map((module) => ({ module })) },
];

describe("declared dependencies", () => {
  it("takes a package's name out of what is imported", () => {
    expect(packageOf("@x/b/part.ts")).toBe("@x/b");
    expect(packageOf("pg/lib/client")).toBe("pg");
    for (const none of ["./a.ts", "../a.ts", "node:fs", "fs/promises"])
      expect(packageOf(none)).toBeUndefined();
  });

  it("finds what a room uses and does not declare", () => {
    expect(undeclared(importing("libs/a/src/a.ts", "@x/b", "node:fs", "./c.ts"), manifests)).toEqual([]);
    expect(undeclared(importing("libs/a/src/a.ts", "@x/c/part"), manifests)).toEqual([
      "libs/a/package.json: @x/c is used by libs/a/src/a.ts: add it to dependencies",
    ]);
  });

  it("finds what reaches into another room by a path", () => {
    const other = new Map([...manifests, ["libs/b/package.json", { name: "@x/b" }]]);
    const reaching = (module: string, resolved: string) => [
      { source: "libs/a/src/a.ts", dependencies: [{ module, resolved }] },
    ];
    expect(undeclared(reaching("../../b/src/b.ts", "libs/b/src/b.ts"), other)).toEqual([
      "libs/a/package.json: libs/a/src/a.ts reaches into @x/b by ../../b/src/b.ts: import the package",
    ]);
    expect(undeclared(reaching("./c.ts", "libs/a/src/c.ts"), other)).toEqual([]);
    expect(undeclared(reaching("../../../examples/a.yaml", "examples/a.yaml"), other)).toEqual([]);
  });

  it("leaves what is for development to tests", () => {
    expect(undeclared(importing("libs/a/src/a.test.ts", "vitest", "fast-check"), manifests)).toEqual([]);
    expect(undeclared(importing("libs/a/src/a.ts", "vitest", "fast-check"), manifests)).toHaveLength(2);
  });
});
