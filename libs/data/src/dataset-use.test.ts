import {
  mkdir,
  mkdtemp,
  readdir,
  rename,
  rm,
  stat,
  statfs,
  symlink,
  truncate,
  utimes,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ifThere } from "@internevo/domain";
import { writeInternevo } from "@internevo/test-kit/data-writers";
import { afterEach, beforeEach, expect, it } from "vitest";
import { beginUse, DATASET_DAYS, makeRoom } from "./dataset-use.ts";
import { diskOf, marginBytes } from "./disk-room.ts";
import { prepareDataset, removeUnusedDatasets } from "./prepare.ts";

let directory = "";
const at = (name: string): string => join(directory, name);
const cut = { vocabularySize: 256, sequenceLengthTokens: 4 };
const signal = new AbortController().signal;
const ended = new Set<string>();
const unended = (ids: readonly string[]) => Promise.resolve(new Set(ids.filter((id) => !ended.has(id))));
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "internevo-use-"));
  ended.clear();
});
afterEach(() => rm(directory, { recursive: true, force: true }));

async function prepared(text: string, jobId?: string): Promise<string> {
  const path = at(`${text.slice(0, 8)}.txt`);
  // A source that was not changed: the same text is not copied again.
  if (!(await isThere(path))) await writeFile(path, text);
  const user = jobId === undefined ? undefined : { jobId, unended };
  return (await prepareDataset({ format: "text", paths: [path] }, at("data"), cut, { user })).path;
}
const isThere = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  );
const days = (count: number): Date => new Date(Date.now() - 86_400_000 * count);
const unusedFor = (path: string, count: number): Promise<void> => utimes(path, days(count), days(count));
const sweep = () => removeUnusedDatasets(at("data"), unended, { now: new Date(), signal });

it("removes copies that nobody used for days, and that no job needs which has not ended", async () => {
  const [needed, over, lately, foreign] = [
    await prepared("needed text", "job-a"),
    await prepared("over and out", "job-b"),
    await prepared("lately used", "job-b"),
    await prepared("of no job at all"),
  ];
  ended.add("job-b");
  for (const path of [needed, over, foreign]) await unusedFor(path, DATASET_DAYS + 1);
  const bytes = (await stat(over)).size + (await stat(foreign)).size;
  expect(await sweep()).toEqual({ files: 2, bytes });
  expect(await Promise.all([needed, over, lately, foreign].map(isThere))).toEqual([true, false, true, false]);

  // The same sources are copied again, and used again; a copy that is used is young.
  expect(await prepared("over and out", "job-c")).toBe(over);
  ended.add("job-a");
  expect(await prepared("needed text", "job-b")).toBe(needed);
  expect(await sweep()).toEqual({ files: 0, bytes: 0 });
  expect(Date.now() - (await stat(needed)).mtimeMs).toBeLessThan(60_000);
});

it("removes what it notes of a copy with it, and leaves what others keep there", async () => {
  const copy = await prepared("over and out", "job-b");
  const folder = at("data/datasets");
  await writeFile(join(folder, "mine.txt"), "mine");
  ended.add("job-b");
  for (const name of await readdir(folder)) await unusedFor(join(folder, name), DATASET_DAYS + 1);
  await sweep();
  expect(await readdir(folder)).toEqual(["mine.txt", "users"]);
  expect(await readdir(join(folder, "users"))).toEqual([]);
  expect(await isThere(copy)).toBe(false);
});

it("lets whoever begins to use a copy wait for its removal, and make it again", async () => {
  const copy = await prepared("over and out", "job-b");
  await unusedFor(copy, DATASET_DAYS + 1);
  ended.add("job-b");
  let using: Promise<string> | undefined;
  let isUsing = false;
  const removed = await removeUnusedDatasets(
    at("data"),
    async (ids) => {
      const found = await unended(ids);
      // The second look: the removal is announced, and nobody has said that the copy is theirs.
      const announced = (await readdir(at("data/datasets"))).some((name) => name.includes(".removal."));
      if (announced && !using) {
        using = prepared("over and out", "job-c");
        void using.then(() => (isUsing = true));
        await sleep(200);
        expect(isUsing, "it waits").toBe(false);
      }
      return found;
    },
    { now: new Date(), signal },
  );
  expect(removed.files).toBe(1);
  expect(await using).toBe(copy);
  expect(await isThere(copy)).toBe(true);
  expect(await readdir(at(`data/datasets/users/${basename(copy)}`))).toEqual(["job-c"]);
});

it("keeps a copy that somebody began to use when its removal was announced", async () => {
  const copy = await prepared("over and out", "job-b");
  await unusedFor(copy, DATASET_DAYS + 1);
  ended.add("job-b");
  const found = await removeUnusedDatasets(
    at("data"),
    async (ids) => {
      const users = await unended(ids);
      // Between the choice and the announcement.
      if (!ids.includes("job-c")) await beginUse(copy, "job-c");
      return users;
    },
    { now: new Date(), signal },
  );
  expect(found).toEqual({ files: 0, bytes: 0 });
  expect(await isThere(copy)).toBe(true);
});

it("never takes a copy from many that begin and end at any moment", async () => {
  const copy = await prepared("over and out", "job-0");
  let running = true;
  const sweeper = (async () => {
    let removed = 0;
    while (running) {
      await ifThere(() => unusedFor(copy, DATASET_DAYS + 1));
      removed += (await sweep()).files;
    }
    return removed;
  })();
  await Promise.all(
    Array.from({ length: 4 }, async (_, user) => {
      for (let round = 0; round < 25; round += 1) {
        const jobId = `job-${user}-${round}`;
        const path = await prepared("over and out", jobId);
        for (let look = 0; look < 3; look += 1) {
          expect(await isThere(path), `${jobId} has its copy`).toBe(true);
          await sleep(1);
        }
        ended.add(jobId);
      }
    }),
  );
  ended.add("job-0");
  await sleep(100);
  running = false;
  expect(await sweeper, "and it goes in the end").toBeGreaterThan(0);
});

it("makes room by what nobody needs, the longest unused first, and only where that suffices", async () => {
  const copies = [
    await prepared("needed text", "job-a"),
    await prepared("older text", "job-b"),
    await prepared("newer text", "job-b"),
  ];
  const [, older, newer] = copies as [string, string, string];
  ended.add("job-b");
  await unusedFor(older, 2);
  await unusedFor(newer, 1);
  const left = () => Promise.all(copies.map(isThere));
  const folder = at("data/datasets");
  const freeBytes = async () => {
    const disk = await diskOf(folder);
    return disk.freeBytes - marginBytes(disk);
  };
  await makeRoom(1, folder, unended);
  expect(await left(), "there is room").toEqual([true, true, true]);
  const { blocks, bsize } = await statfs(folder);
  await makeRoom(blocks * bsize, folder, unended);
  expect(await left(), "all of them would not do").toEqual([true, true, true]);

  // Sparse: it counts as so much, though removing it frees nothing, so that both are asked for.
  await mkdir(folder, { recursive: true });
  for (const path of [older, newer]) {
    const { mtime } = await stat(path);
    await truncate(path, 2 ** 40);
    await utimes(path, mtime, mtime);
  }
  await makeRoom((await freeBytes()) + 2 ** 30, folder, unended);
  expect(await left()).toEqual([true, false, false]);
});

it("removes links to data that nothing names, once nobody used them for days", async () => {
  const documents = [[1, 2, 3, 4, 5]];
  const bin = await writeInternevo(at("real.bin"), documents);
  await mkdir(at("apart"));
  await rename(`${bin}.meta`, at("apart/meta"));
  await symlink(at("apart/meta"), `${bin}.meta`);
  const prepare = () => prepareDataset({ format: "internevo", path: bin }, at("data"), cut);
  const links = join((await prepare()).path, "..");
  await unusedFor(links, DATASET_DAYS + 1);
  await sweep();
  expect(await isThere(join(links, "data.bin")), "its note names it").toBe(true);
  for (const name of await readdir(at("data/datasets")))
    if (name.startsWith("source-")) await rm(at(`data/datasets/${name}`));
  const left = join(links, "..", "left");
  await mkdir(left);
  await sweep();
  expect(await isThere(left), "somebody may be making it").toBe(true);
  expect(await isThere(links)).toBe(false);
  expect(join((await prepare()).path, "..")).toBe(links);
  await unusedFor(left, DATASET_DAYS + 1);
  await sweep();
  expect(await readdir(join(links, ".."))).toEqual([basename(links)]);
});
