import { expect, it } from "vitest";
import { meantProfiles, type CalledProfile } from "./meant-profiles.ts";

const profile = (clusterKey: string, day: number, over: Partial<CalledProfile> = {}): CalledProfile => ({
  name: `testbed 2026-01-0${day} 12:00 UTC`,
  clusterKey,
  project: null,
  createdAt: `2026-01-0${day}T12:00:00.000Z`,
  ...over,
});
const ssh = profile("ssh:testbed:2x4", 1);
const small = profile("ssh:testbed:1x4", 2);
const local = profile("local:testbed:1x1", 3);
const gpus = profile("slurm:testbed:4x8:cuda", 4);
const slurm = profile("slurm:testbed:4x8", 5);
const given = profile("given:testbed", 5, { name: "testbed" });
const ofNlp = profile("given:testbed", 6, { name: "testbed", project: "nlp" });
const ofVision = profile("given:testbed", 7, { name: "testbed", project: "vision" });

it.each([
  ["of two launchers the job's own", [ssh, local], "ssh", [ssh]],
  ["of two launchers the job's own, though another is newer", [ssh, local, gpus], "local", [local]],
  ["of several sizes the newest", [ssh, small, local], "ssh", [small]],
  ["of several sizes of another launcher the newest", [ssh, small], "local", [small]],
  ["of GPUs and of none, of one launcher, none", [gpus, slurm], "slurm", [gpus, slurm]],
  ["of launchers that are all others' none", [ssh, gpus], "local", [ssh, gpus]],
  ["for no job none of several clusters", [ssh, small], null, [ssh, small]],
  ["the one of that name, whoever measures a cluster called so", [given, local, ssh], "ssh", [given]],
  ["its own project's", [given, ofNlp, ofVision, ssh], "ssh", [ofNlp]],
  ["none of two other projects'", [ofVision, { ...ofNlp, project: "other" }], "ssh", "all"],
] as const)("means %s", (_what, called, launcher, expected) => {
  const meant = meantProfiles<CalledProfile>(called, "testbed", { project: "nlp", launcher });
  expect(meant).toEqual(expected === "all" ? called : expected);
});

it("means, for the installation, its own before those of projects, and none of several projects'", () => {
  const meant = (called: readonly CalledProfile[]) =>
    meantProfiles(called, "testbed", { project: null, launcher: "local" });
  expect(meant([ofNlp, given])).toEqual([given]);
  expect(meant([ofNlp, ofVision])).toEqual([ofNlp, ofVision]);
  expect(meant([])).toEqual([]);
});
