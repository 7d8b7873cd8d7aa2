import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { isReachableByAll, makeMissingLinks } from "./postgres-binaries.ts";

it("makes the links that npm leaves out when the package's install script was not allowed to run", () => {
  const root = mkdtempSync(join(tmpdir(), "internevo-links-"));
  try {
    mkdirSync(join(root, "native/lib"), { recursive: true });
    writeFileSync(join(root, "native/lib/libpq.so.5.18"), "the library");
    writeFileSync(
      join(root, "native/pg-symlinks.json"),
      JSON.stringify([{ source: "native/lib/libpq.so.5.18", target: "native/lib/libpq.so.5" }]),
    );
    makeMissingLinks(root);
    makeMissingLinks(root);
    expect(readFileSync(join(root, "native/lib/libpq.so.5"), "utf8")).toBe("the library");
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
});

it("knows which directories everybody can enter", () => {
  const closed = mkdtempSync(join(tmpdir(), "internevo-closed-"));
  try {
    expect(isReachableByAll("/usr/lib")).toBe(true);
    expect(isReachableByAll(join(closed, "not", "made", "yet"))).toBe(false);
  } finally {
    rmSync(closed, { recursive: true, force: true });
  }
});
