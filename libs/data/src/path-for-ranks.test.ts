import { mkdir, mkdtemp, readlink, rename, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir, userInfo } from "node:os";
import { dirname, join } from "node:path";
import { writeInternevo, writeMegatron } from "@internevo/test-kit/data-writers";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { assertLeadsStill } from "./handed-over.ts";
import { assertWeightsLeadStill, handOverWeights } from "./handed-weights.ts";
import { openForRanks } from "./open-data.ts";
import { pathForRanks } from "./path-for-ranks.ts";
import { prepareData } from "./prepare.ts";

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "internevo-ranks-"));
});
afterEach(() => rm(directory, { recursive: true, force: true }));
const at = (name: string): string => join(directory, name);

const cut = { vocabularySize: 256, sequenceLengthTokens: 2 };
const documents = [
  [1, 2, 3, 4],
  [5, 6, 7],
];

async function swap(path: string, target: string): Promise<void> {
  await symlink(target, `${path}.new`);
  await rename(`${path}.new`, path);
}

describe("the path of a file for ranks", () => {
  it("keeps the links that every Linux has, and none that others made", async () => {
    const own = await pathForRanks("/proc/self/exe");
    expect(own.path, "another file system").toBe(own.real);
    const sh = await pathForRanks("/bin/sh");
    expect(sh.path, "only root changes it").toBe("/bin/sh");
    await symlink("/bin/sh", at("sh"));
    expect(await pathForRanks(at("sh"))).toMatchObject({ path: "/bin/sh", real: sh.real });
    const { handle, forRanks } = await openForRanks(at("sh"), "data.path", {});
    await handle.close();
    expect(forRanks).toBe("/bin/sh");
  });

  it("has folders above a link, wherever it leads", async () => {
    await mkdir(at("a/b"), { recursive: true });
    await writeFile(at("a/file"), "x");
    await symlink(at("a/b"), at("link"));
    await symlink("link/../file", at("other"));
    const real = at("a/file");
    expect(await pathForRanks(at("other"))).toMatchObject({ path: real, real });
    await symlink("circle", at("circle"));
    await expect(pathForRanks(at("circle"))).rejects.toMatchObject({ code: "ELOOP" });
    await expect(pathForRanks(at("missing/file"))).rejects.toMatchObject({ code: "ENOENT" });
  });
});

const isRoot = process.getuid?.() === 0 && dirname(userInfo().homedir) === "/";

/** Hosts where root has mounted a file system somewhere else, and has a link to it. */
describe.runIf(isRoot)("where root has a link to the data", () => {
  let roots: string;
  beforeEach(async () => {
    roots = await mkdtemp(join(userInfo().homedir, ".internevo-test-"));
    await mkdir(at("pool"));
    await symlink(at("pool"), join(roots, "data"));
  });
  afterEach(() => rm(roots, { recursive: true, force: true }));

  it("hands data over by the path of the job, which other hosts have", async () => {
    await writeMegatron(at("pool/set"), documents);
    const data = { format: "megatron", path: join(roots, "data/set.bin") } as const;
    const prepared = await prepareData(data, at("services"), cut);
    expect(prepared.path).toBe(data.path);
    await assertLeadsStill(data, prepared, at("services/datasets"));
    // Whoever owns what the link leads to puts a link of their own there.
    await rename(at("pool"), at("former"));
    await mkdir(at("secrets"));
    await writeMegatron(at("secrets/set"), documents);
    await symlink(at("secrets"), at("pool"));
    await expect(assertLeadsStill(data, prepared, at("services/datasets"))).rejects.toThrow(
      "does not lead any more to the file that was read",
    );
    expect((await prepareData(data, at("services"), cut)).path).toBe(at("secrets/set.bin"));
  });

  it("follows the links that lie in the data, and keeps root's", async () => {
    const bin = await writeInternevo(at("pool/real.bin"), documents);
    await mkdir(at("pool/apart"));
    await rename(`${bin}.meta`, at("pool/apart/meta"));
    await symlink("real.bin", at("pool/link.bin"));
    await symlink(join(roots, "data/apart/meta"), at("pool/link.bin.meta"));
    const data = { format: "internevo", path: join(roots, "data/link.bin") } as const;
    const { path } = await prepareData(data, at("services"), cut);
    expect(await readlink(path)).toBe(join(roots, "data/real.bin"));
    expect(await readlink(`${path}.meta`)).toBe(join(roots, "data/apart/meta"));
    await swap(at("pool/link.bin"), "/etc/passwd");
    await assertLeadsStill(data, { path }, at("services/datasets"));
  });

  it("hands weights over by that path, and looks at what it leads through", async () => {
    await writeFile(at("pool/tensors"), "tensors");
    const files = new Map([["model.safetensors", join(roots, "data/tensors")]]);
    const folder = await handOverWeights({ documents: new Map(), files }, at("weights"));
    await assertWeightsLeadStill(folder);
    await rename(at("pool"), at("former"));
    await symlink(at("former"), at("pool"));
    await expect(assertWeightsLeadStill(folder)).rejects.toThrow("does not lead any more");
  });
});
