import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import {
  countMissing,
  firstCounts,
  measurementCount,
  missingMeasurements,
  requiredMeasurements,
} from "@internevo/cost-model";
import { clusterKey, type JobSpec, type Profile } from "@internevo/domain";
import { ownHost, probeIn, trainerIn } from "@internevo/launcher";
import { measuredFirst, MOST_AT_A_TIME, obtainProfile, type ObtainProfileOptions } from "@internevo/stages";
import {
  claimHosts,
  discardProfile,
  getJobDetail,
  getProfile,
  jobLease,
  listProfiles,
  newTraceparent,
  queuePlace,
  releaseHosts,
  requestCancel,
  storeProfile,
} from "@internevo/store";
import { createWorld, smallJob, type World } from "@internevo/test-kit/world";
import { profiler } from "../src/index.ts";

const nativeDirectory =
  process.env["INTERNEVO_NATIVE_DIRECTORY"] ?? join(import.meta.dirname, "..", "..", "..", "native", "dist");
const measuring = { probe: probeIn(nativeDirectory), threadsPerRank: 1 };

let world: World;
beforeAll(async () => {
  world = await createWorld();
  await world.start(profiler);
});
afterAll(() => world.close());

afterEach(() => world.endJobs());

const cluster = (over: Record<string, unknown>) => ({
  nodes: 1,
  gpusPerNode: 2,
  memoryPerGpu: "512MiB",
  ...over,
});
const profileOf = async (jobId: string) => {
  const record = await getProfile(world.database.db, (await world.job(jobId)).profileId as string);
  if (!record) throw new Error("the job has no profile");
  return record;
};

/** How far a job's profiling said that it was, since it measures: done and total. */
async function progressOf(of: World, jobId: string): Promise<(readonly [number, number])[]> {
  const { rows } = await of.database.db.execute<{ data: Record<string, unknown> }>(
    `select data from job_log where job_id = '${jobId}' and type = 'progress' order by id`,
  );
  return rows.flatMap(({ data }) =>
    data["stage"] === "profiling" && data["waits"] !== true
      ? [[Number(data["done"]), Number(data["total"])] as const]
      : [],
  );
}

/** Seconds from the first to the last that a job's profiling said while it measured. */
async function measuredFor(of: World, jobId: string): Promise<number> {
  const { rows } = await of.database.db.execute<{ seconds: number }>(
    `select extract(epoch from max(at) - min(at))::float8 as seconds from job_log
     where job_id = '${jobId}' and type = 'progress' and data->>'stage' = 'profiling' and (data->>'done')::int > 0`,
  );
  return rows[0]?.seconds ?? NaN;
}

/**
 * Parts of a measurement that are counted by themselves; within each the total is one, and nothing is counted
 * beyond it.
 */
function passesOf(progress: readonly (readonly [number, number])[]): (readonly [number, number])[][] {
  const passes: (readonly [number, number])[][] = [];
  let before = Infinity;
  for (const [done, total] of progress) {
    if (done < before) passes.push([]);
    passes.at(-1)?.push([done, total]);
    before = done;
  }
  for (const pass of passes) {
    expect(new Set(pass.map(([, total]) => total)).size, JSON.stringify(pass)).toBe(1);
    for (const [done, total] of pass) expect(done).toBeLessThanOrEqual(total);
  }
  return passes;
}

describe("profiler", () => {
  it("takes a shipped profile without measuring", async () => {
    const id = await world.submit(smallJob({ cluster: cluster({ profile: "a800-128" }) }));
    await world.untilState(id, "planning", 30);
    expect((await profileOf(id)).profile.name).toContain("a800");
  });

  it("names a profile that is missing", async () => {
    const id = await world.submit(smallJob({ cluster: cluster({ profile: "no-such-profile" }) }));
    await world.untilState(id, "failed", 30);
    expect((await world.job(id)).failure).toMatchObject({
      code: "profile-missing",
      message: expect.stringContaining("no-such-profile"),
      remedy: expect.stringContaining("a800-128"),
    });
  });

  it("reads no file that a job names", async () => {
    const id = await world.submit(smallJob({ cluster: cluster({ profile: "/etc/passwd" }) }));
    await world.untilState(id, "failed", 30);
    const { failure } = await world.job(id);
    expect(failure).toMatchObject({ code: "profile-missing", message: "no profile is named /etc/passwd" });
  });

  it("measures what a job needs, reuses it while it is fresh, and completes it with what another job needs", async () => {
    const own = cluster({ name: "measured" });
    const count = (job: JobSpec, fresh: Profile | undefined) => Promise.resolve(firstCounts(job, fresh));
    const before = async (jobId: string) =>
      measuredFirst(world.database, (await world.job(jobId)).spec, measuring, count);
    const first = await world.submit(smallJob({ cluster: own, until: "profiling" }));
    const { spec } = await world.job(first);
    const whole = measurementCount(requiredMeasurements(spec));
    await world.untilState(first, "succeeded", 240);
    const record = await profileOf(first);
    expect(record.profile.quality?.secondsPerPoint).toBeGreaterThan(0);
    expect(await before(first)).toEqual({
      missing: 0,
      noisy: 0,
      seconds: null,
      profile: record.profile.name,
    });
    expect(await measuredFirst(world.database, { ...spec, measureAgain: true }, measuring, count)).toEqual({
      missing: whole,
      noisy: 0,
      seconds: whole * (record.profile.quality?.secondsPerPoint ?? 0),
      profile: null,
    });
    expect(
      await measuredFirst(world.database, spec, { ...measuring, threadsPerRank: 7 }, count),
      "measured with other threads",
    ).toMatchObject({ missing: whole, profile: null });
    expect(record.clusterKey).toBe(clusterKey(spec.cluster));
    expect(countMissing(record.profile, requiredMeasurements(spec))).toBe(0);
    expect(record.profile.provenance).toMatchObject({
      source: expect.stringContaining("internevo-probe"),
      command: expect.stringContaining("mpirun"),
      versions: { compiler: expect.any(String), "internevo-probe": expect.any(String) },
    });
    expect(record.profile.device.peakFlopsPerSecondFp32).toBeGreaterThan(1e8);
    const progress = await world.untilEvent(
      first,
      (event) => event.type === "progress" && (event.data["total"] as number) > 1,
    );
    expect(progress.data["stage"]).toBe("profiling");
    const passes = passesOf(await progressOf(world, first));
    expect(passes).toHaveLength(1);
    expect(passes[0]?.at(-1)).toEqual([passes[0]?.[0]?.[1], passes[0]?.[0]?.[1]]);

    const again = await world.submit(smallJob({ cluster: own }));
    await world.untilState(again, "planning", 30);
    expect((await world.job(again)).profileId).toBe(record.id);

    const longer = await world.submit(
      smallJob({ cluster: own, until: "profiling", sequenceLengthTokens: 32, globalBatchTokens: 512 }),
    );
    const { spec: longerSpec } = await world.job(longer);
    const lacking = measurementCount(missingMeasurements(record.profile, requiredMeasurements(longerSpec)));
    expect(lacking).toBeGreaterThan(0);
    expect(await before(longer)).toEqual({
      missing: lacking,
      noisy: 0,
      seconds: lacking * (record.profile.quality?.secondsPerPoint ?? 0),
      profile: record.profile.name,
    });
    await world.untilState(longer, "succeeded", 240);
    expect(await before(longer)).toMatchObject({ missing: 0, seconds: null });
    const completed = await profileOf(longer);
    expect(completed.id).not.toBe(record.id);
    expect(countMissing(completed.profile, requiredMeasurements((await world.job(longer)).spec))).toBe(0);
    expect(countMissing(completed.profile, requiredMeasurements(spec))).toBe(0);
    expect(Math.abs(Date.parse(completed.freshUntil) - Date.parse(record.freshUntil))).toBeLessThan(2000);

    // Whoever plans while a run holds the cluster takes a noisy one: it could not be measured now.
    const noisyProfile: Profile = {
      ...record.profile,
      modules: record.profile.modules.map((module) => ({ ...module, noisy: true })),
      ...(record.profile.quality ? { quality: { ...record.profile.quality, verdict: "noisy" } } : {}),
    };
    const noisy = await storeProfile(
      world.database.db,
      { clusterKey: record.clusterKey, profile: noisyProfile, freshForSeconds: 0 },
      { jobId: first },
    );
    const obtained = await obtainProfile({
      settings: { ...measuring, trainer: trainerIn(nativeDirectory) },
      database: world.database,
      spec,
      acceptsOld: true,
    } as ObtainProfileOptions);
    expect(obtained).toMatchObject({ status: "obtained", how: "fresh" });
    if (obtained.status === "obtained")
      expect(await world.database.transaction(obtained.persist)).toBe(noisy);
  }, 900_000);

  it("measures though a fresh profile is there when the job asks for it, and ends then where it asks for no more", async () => {
    const own = cluster({ name: "again" });
    const first = await world.submit(smallJob({ cluster: own, until: "profiling", data: undefined }));
    await world.untilState(first, "succeeded", 240);
    const record = await profileOf(first);
    expect(record.profile.quality).toMatchObject({
      verdict: "quiet",
      noisyPoints: 0,
      hosts: [{ ranks: 2, othersSeconds: expect.any(Number) }],
    });
    const again = await world.submit(smallJob({ cluster: own, until: "profiling", measureAgain: true }));
    await world.untilState(again, "succeeded", 240);
    expect((await world.job(again)).profileId).not.toBe(record.id);
    const reused = await world.submit(smallJob({ cluster: own }));
    await world.untilState(reused, "planning", 60);
    expect((await world.job(reused)).profileId).toBe((await world.job(again)).profileId);
  }, 900_000);

  it("uses no profile that was discarded", async () => {
    const own = cluster({ name: "discarded" });
    const first = await world.submit(smallJob({ cluster: own, until: "profiling" }));
    await world.untilState(first, "succeeded", 240);
    const { id } = await profileOf(first);
    expect(await discardProfile(world.database.db, id)).toBe(true);
    expect((await listProfiles(world.database.db)).items.map((profile) => profile.id)).not.toContain(id);
    const next = await world.submit(smallJob({ cluster: own, until: "profiling" }));
    await world.untilState(next, "succeeded", 240);
    expect((await world.job(next)).profileId).not.toBe(id);
    const named = await world.submit(smallJob({ cluster: { ...own, profile: id } }));
    await world.untilState(named, "failed", 30);
    expect((await world.job(named)).failure).toMatchObject({
      code: "profile-missing",
      message: expect.stringContaining("was discarded"),
    });
    // The job that used it still shows it.
    expect((await profileOf(first)).discardedAt).not.toBeNull();
  }, 900_000);

  it("measures again when a rank is killed", async () => {
    const id = await world.submit(smallJob({ cluster: cluster({ name: "killed" }) }));
    await world.untilEvent(
      id,
      (event) => event.type === "progress" && (event.data["done"] as number) > 0,
      120,
    );
    process.kill(world.rankPids()[0] as number, "SIGKILL");
    await world.untilState(id, "planning", 240);
    expect(
      countMissing((await profileOf(id)).profile, requiredMeasurements((await world.job(id)).spec)),
    ).toBe(0);
  }, 900_000);

  it("stops when the job is cancelled, and stores nothing", async () => {
    const before = (await listProfiles(world.database.db)).items.length;
    const id = await world.submit(smallJob({ cluster: cluster({ name: "cancelled" }) }));
    await world.untilEvent(
      id,
      (event) => event.type === "progress" && (event.data["done"] as number) > 0,
      120,
    );
    expect(world.rankPids().length).toBeGreaterThan(0);
    expect(await world.database.transaction((tx) => requestCancel(tx, id))).toBe("cancelling");
    await world.untilState(id, "cancelled", 30);
    await world.untilNoRanks();
    expect((await listProfiles(world.database.db)).items).toHaveLength(before);
  }, 900_000);
});

describe("jobs that wait for their host", () => {
  it("hold no place of a service, stop no job that needs none, and get it in the order of their submission", async () => {
    const other = jobLease(await world.submit(smallJob({ cluster: cluster({ profile: "a800-128" }) })));
    const command = { type: "job.profile" as const, data: {}, traceparent: newTraceparent() };
    const request = { owner: other, hosts: [ownHost()], submittedAt: new Date(), command };
    expect(await world.database.transaction((tx) => claimHosts(tx, request))).toBe(true);
    const ids: string[] = [];
    // One more than a service works on at a time.
    for (let index = 0; index <= MOST_AT_A_TIME; index += 1)
      ids.push(
        await world.submit(smallJob({ cluster: cluster({ name: `waits-${index}` }), until: "profiling" })),
      );
    const last = ids.at(-1) as string;
    await world.untilEvent(last, ({ type, data }) => type === "progress" && data["waits"] === true, 120);
    const free = await world.submit(smallJob({ cluster: cluster({ profile: "a800-128" }) }));
    await world.untilState(free, "planning", 60);
    expect((await getJobDetail(world.database.db, last))?.queue).toMatchObject({
      position: ids.length,
      behindCount: ids.length,
    });
    await world.database.transaction((tx) => releaseHosts(tx, other));
    const [first, second] = ids as [string, string];
    const measures = (id: string) =>
      world.untilEvent(id, ({ type, data }) => type === "progress" && (data["done"] as number) > 0, 240);
    await measures(first);
    expect(await queuePlace(world.database.db, jobLease(second))).toMatchObject({
      position: 1,
      behind: [{ id: first, holds: true }],
    });
    await world.database.transaction((tx) => requestCancel(tx, first));
    await measures(second);
    await world.endJobs();
    await world.untilNoRanks();
  }, 900_000);
});

describe("profiler on a busy machine", () => {
  it("measures noisy points again within its budget, marks what stays noisy, and has the next job measure that again", async () => {
    // Whatever else runs here counts as a disturbance.
    const busy = await createWorld();
    try {
      await busy.start(profiler, {
        INTERNEVO_MOST_OTHERS_PERCENT: "0",
        INTERNEVO_PROFILE_AGAIN_SECONDS: "2",
      });
      const own = cluster({ name: "busy" });
      const profiled = async () => {
        const id = await busy.submit(smallJob({ cluster: own, until: "profiling" }));
        await busy.untilState(id, "succeeded", 240);
        const record = (await getProfile(
          busy.database.db,
          (await busy.job(id)).profileId as string,
        )) as NonNullable<Awaited<ReturnType<typeof getProfile>>>;
        // Once, and once more for each time that noisy points are measured again.
        const passes = passesOf(await progressOf(busy, id));
        expect(passes.length > 1).toBe((record.profile.quality?.measuredAgain ?? 0) > 0);
        const { secondsPerPoint = NaN } = record.profile.quality ?? {};
        expect(
          secondsPerPoint * measurementCount(requiredMeasurements((await busy.job(id)).spec)),
          "what is measured again is a part of how long a measurement takes",
        ).toBeGreaterThan(await measuredFor(busy, id));
        return record;
      };
      const first = await profiled();
      const { quality } = first.profile;
      expect(quality).toMatchObject({
        verdict: "noisy",
        disturbances: [
          expect.stringMatching(/others took .* of the processor time/),
          ...(quality?.disturbances.slice(1) ?? []),
        ],
      });
      expect(quality?.noisyPoints).toBeGreaterThan(10);
      expect(first.profile.modules.some(({ noisy }) => noisy === true)).toBe(true);
      expect((await listProfiles(busy.database.db)).items[0]).toMatchObject({
        id: first.id,
        quality: { verdict: "noisy" },
      });
      expect((await profiled()).id).not.toBe(first.id);
    } finally {
      await busy.close();
    }
  }, 900_000);
});

it("waits while another installation of this machine measures, and says so", async () => {
  const shared = mkdtempSync(join(tmpdir(), "internevo-shared-"));
  const worlds = [await createWorld(), await createWorld()] as const;
  try {
    for (const each of worlds) await each.startProcess("profiler", { INTERNEVO_MACHINE_DIRECTORY: shared });
    const ids = await Promise.all(
      worlds.map((each) => each.submit(smallJob({ cluster: cluster({ name: "shared", gpusPerNode: 1 }) }))),
    );
    const ended = Promise.all(
      worlds.map((each, index) => each.untilState(ids[index] as string, "planning", 400)),
    );
    let over = false;
    // A failure is thrown where `ended` is awaited, below.
    void ended.finally(() => (over = true)).catch(() => {});
    const seen = [0, 0];
    while (!over) {
      const ranks = worlds.map((each) => each.rankPids().length);
      ranks.forEach((count, index) => (seen[index] = Math.max(seen[index] ?? 0, count)));
      expect(Math.min(...ranks), `ranks of both at once: ${ranks.join(", ")}`).toBe(0);
      await sleep(50);
    }
    await ended;
    expect(Math.min(...seen)).toBeGreaterThan(0);
    const said = await Promise.all(
      worlds.map(async (each, index) => {
        const events = each.untilEvent(
          ids[index] as string,
          ({ type, data }) =>
            type === "progress" &&
            String(data["message"]).startsWith("has its hosts, and waits: another installation"),
          1,
        );
        return events.then(({ data }) => String(data["message"])).catch(() => undefined);
      }),
    );
    expect(said.filter((text) => text !== undefined)).toEqual([
      expect.stringMatching(
        /^has its hosts, and waits: another installation measures on this machine, since [-\d :]+/,
      ),
    ]);
  } finally {
    for (const each of worlds) await each.close();
    rmSync(shared, { recursive: true });
  }
}, 900_000);
