import { defineConfig } from "vitest/config";
import { YIELDS_VARIABLE } from "./libs/launcher/src/environment.ts";
import { LongestFirst } from "./tools/check/longest-first.ts";
import { UNIT_OPTIONS, UNIT_TESTS } from "./vitest.unit.config.ts";

const TIMEOUTS_MS = { testTimeout: 180_000, hookTimeout: 240_000 };

/** Tests with real parts: those of a project share one Postgres and one NATS. */
export const withRealParts = {
  ...TIMEOUTS_MS,
  root: import.meta.dirname,
  globalSetup: [`${import.meta.dirname}/libs/test-kit/src/vitest-global-setup.ts`],
  setupFiles: [`${import.meta.dirname}/libs/test-kit/src/vitest-file-setup.ts`],
  pool: "forks" as const,
};

/** Of the programs that tests start. */
export const OF_PROGRAMS = {
  env: {
    // Ranks of several files wait beside others that compute: two that spin would take both cores.
    [YIELDS_VARIABLE]: "1",
    // Services are started some hundred times. What is compiled once is kept, as for a user's.
    NODE_COMPILE_CACHE: `${import.meta.dirname}/.tools/compile-cache`,
  },
};

/** Those that take minutes each: kills, losses and backups of whole jobs. `npm run test:long` runs them. */
export const LONG_TESTS = "**/*.long.test.ts";

/** They keep nothing in their modules: files of one worker share them. */
const API_TESTS = ["apps/api/test/**/*.test.ts"];

export default defineConfig({
  test: {
    passWithNoTests: false,
    // Many tests wait for programs that they start: a third file keeps two cores busy.
    maxWorkers: 3,
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        test: {
          ...withRealParts,
          ...OF_PROGRAMS,
          name: "whole",
          include: ["libs/*/{src,test}/**/*.test.ts", "apps/*/{src,test}/**/*.test.ts", "tools/**/*.test.ts"],
          exclude: ["**/node_modules/**", "**/*.e2e.test.ts", LONG_TESTS, ...UNIT_TESTS, ...API_TESTS],
        },
      },
      {
        test: {
          ...withRealParts,
          ...OF_PROGRAMS,
          name: "api",
          isolate: false,
          include: API_TESTS,
          exclude: ["**/node_modules/**"],
        },
      },
      {
        test: {
          ...UNIT_OPTIONS,
          ...TIMEOUTS_MS,
          root: import.meta.dirname,
          name: "unit",
          include: UNIT_TESTS,
          exclude: ["**/node_modules/**"],
        },
      },
    ],
  },
});
