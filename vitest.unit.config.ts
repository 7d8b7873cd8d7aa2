import { defineConfig } from "vitest/config";

/**
 * The fast tier: tests beside the code of rooms that need no Postgres, NATS, MPI, browser or native build.
 * Tests that start programs stand in a room's `test` folder, or in the rooms that are left out here.
 */
export default defineConfig({
  test: {
    root: import.meta.dirname,
    include: [
      "libs/{advisor,contracts,cost-model,domain,frameworks,plan,profiles,search,service-kit,simulator,test-kit}/src/**/*.test.ts",
      "apps/*/src/**/*.test.ts",
      "tools/{bench,check,setup}/**/*.test.ts",
    ],
    exclude: ["**/node_modules/**"],
    passWithNoTests: false,
    // A machine that is busy with other work is slow, and no less right.
    testTimeout: 60_000,
    pool: "forks",
    maxWorkers: 2,
  },
});
