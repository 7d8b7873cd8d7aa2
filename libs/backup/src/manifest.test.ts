import { mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { newestMigration } from "@internevo/store";
import {
  assertListable,
  isNewer,
  MANIFEST,
  MANIFEST_SUM,
  manifestTexts,
  MOST_MANIFEST_BYTES,
  readManifest,
  readText,
  type Manifest,
} from "./manifest.ts";

let directory: string;
beforeEach(() => (directory = mkdtempSync(join(tmpdir(), "internevo-manifest-"))));
afterEach(() => rmSync(directory, { recursive: true }));

const manifest = (over: Partial<Manifest> = {}): Manifest => ({
  schemaVersion: 1,
  productVersion: "0.1.0",
  takenAt: "2026-11-28T11:00:00.000Z",
  finishedAt: "2026-11-28T11:00:01.000Z",
  postgresVersion: "18.4",
  migration: newestMigration(),
  dataDirectory: ["/data"],
  counts: { jobs: 0, unfinishedJobs: 0, workloads: 0, checkpoints: 0, files: 0, bytes: 0 },
  tables: [],
  sequences: [],
  files: [],
  warnings: [],
  ...over,
});

function write(written: Manifest): void {
  const texts = manifestTexts(written);
  writeFileSync(join(directory, MANIFEST), texts.manifest);
  writeFileSync(join(directory, MANIFEST_SUM), texts.sum);
}

describe("a manifest", () => {
  it("is read as it was written", async () => {
    write(manifest({ warnings: ["one"] }));
    expect(await readManifest(directory)).toEqual(manifest({ warnings: ["one"] }));
  });

  it("of a newer version is refused, with what is newer", async () => {
    for (const [over, field] of [
      [{ schemaVersion: 2 as 1 }, "schemaVersion"],
      [{ productVersion: "0.10.0" }, "productVersion"],
      [{ migration: { ...newestMigration(), hash: "other" } }, "migration"],
      [{ migration: { ...newestMigration(), createdAt: 9e12 } }, "migration"],
    ] as const) {
      write(manifest(over));
      await expect(readManifest(directory)).rejects.toMatchObject({
        code: "conflict",
        details: [{ field, remedy: "restore it with the version that took it, or a newer one" }],
      });
    }
  });

  it("that leads out of the backup is refused", async () => {
    for (const path of ["../secrets", "/etc/passwd", "files/../../x", "files/./x"]) {
      write(manifest({ files: [{ path, bytes: 1, sha256: "0".repeat(64) }] }));
      await expect(readManifest(directory)).rejects.toMatchObject({ code: "data-invalid" });
    }
  });

  it("that has what no backup writes is refused", async () => {
    const id = "7d9f5f0e-8f43-4a52-9a64-0c1ce7a7d1a5";
    for (const path of [
      "files/postgres/internevo-made",
      "files/postgres-identity",
      "files/postgres-location",
      "files/secrets.json",
      "files/jobs/x/checkpoints/step-1/manifest.json",
      `files/jobs/${id}/checkpoints/step-1.tmp/manifest.json`,
      `files/jobs/${id}/slurm/run/record.json`,
      `files/jobs/${id}/timelines/a/b.json`,
      `files/jobs/${id}/exports/a\u001b[2Jb`,
      "database/other.copy.gz",
      "notes.txt",
    ]) {
      write(manifest({ files: [{ path, bytes: 1, sha256: "0".repeat(64) }] }));
      await expect(readManifest(directory), path).rejects.toMatchObject({
        code: "data-invalid",
        details: [{ message: expect.stringContaining("no backup has") as string }],
      });
    }
  });

  it("that names a table without its file, or beside its folder, is refused", async () => {
    for (const name of ["jobs", "../jobs"]) {
      write(manifest({ tables: [{ name, columns: ["id"], rows: 0 }] }));
      await expect(readManifest(directory)).rejects.toMatchObject({ code: "data-invalid" });
    }
  });

  it("is read as long as a text can be, and no longer one is written", async () => {
    const path = join(directory, MANIFEST);
    writeFileSync(path, "");
    truncateSync(path, 2 ** 28 + 1);
    expect((await readText(path)).length).toBe(2 ** 28 + 1);
    const refusal = {
      code: "bad-request",
      details: [{ field: "files", remedy: expect.stringContaining("internevo retention") as string }],
    };
    const long = "x".repeat(2 ** 28);
    const thrownBy = (work: () => unknown): unknown => {
      try {
        return work();
      } catch (error) {
        return error;
      }
    };
    expect(thrownBy(() => manifestTexts(manifest({ warnings: [long, long] })))).toMatchObject(refusal);
    // Some hundred bytes each, with the sum.
    const name = `files/${"a".repeat(2 ** 20)}`;
    const listed = (count: number) => Array.from({ length: count }, () => ({ path: name, bytes: 1 }));
    expect(thrownBy(() => assertListable(listed(Math.ceil(MOST_MANIFEST_BYTES / 2 ** 20))))).toMatchObject(
      refusal,
    );
    assertListable(listed(2));
  });

  it("that is missing, or damaged, is named", async () => {
    await expect(readManifest(directory)).rejects.toMatchObject({ code: "not-found" });
    write(manifest());
    writeFileSync(
      join(directory, MANIFEST),
      manifestTexts(manifest({ takenAt: "2026-11-28T11:00:00.001Z" })).manifest,
    );
    await expect(readManifest(directory)).rejects.toMatchObject({
      code: "data-invalid",
      message: expect.stringContaining("its SHA-256 is another") as string,
    });
  });
});

it("knows which version is newer", () => {
  expect([isNewer("0.10.0", "0.9.1"), isNewer("0.9.1", "0.10.0"), isNewer("1.0.0", "1.0.0")]).toEqual([
    true,
    false,
    false,
  ]);
});
