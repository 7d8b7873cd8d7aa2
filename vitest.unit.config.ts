import { defineConfig } from "vitest/config";

/**
 * The fast tier: tests beside the code of rooms that need no Postgres, NATS, MPI, browser or native build.
 * Tests that start programs stand in a room's `test` folder, or in the rooms that are left out here.
 */
export const UNIT_TESTS = [
  "libs/{advisor,contracts,cost-model,domain,frameworks,plan,profiles,search,service-kit,simulator,test-kit}/src/**/*.test.ts",
  "apps/*/src/**/*.test.ts",
  "tools/{bench,check,setup}/**/*.test.ts",
];

/** They keep nothing in their modules: files share them, which halves the time. */
export const UNIT_OPTIONS = { pool: "forks", isolate: false } as const;

export default defineConfig({
  test: {
    ...UNIT_OPTIONS,
    root: import.meta.dirname,
    include: UNIT_TESTS,
    exclude: ["**/node_modules/**"],
    passWithNoTests: false,
    // A machine that is busy with other work is slow, and no less right.
    testTimeout: 60_000,
    maxWorkers: 2,
  },
});
