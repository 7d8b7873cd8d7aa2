import { defineConfig } from "vitest/config";
import { LongestFirst } from "./tools/check/longest-first.ts";

export default defineConfig({
  test: {
    root: import.meta.dirname,
    include: ["libs/*/{src,test}/**/*.test.ts", "apps/*/{src,test}/**/*.test.ts", "tools/**/*.test.ts"],
    exclude: ["**/node_modules/**", "**/*.e2e.test.ts"],
    passWithNoTests: false,
    globalSetup: [`${import.meta.dirname}/libs/test-kit/src/vitest-global-setup.ts`],
    setupFiles: [`${import.meta.dirname}/libs/test-kit/src/vitest-file-setup.ts`],
    testTimeout: 180_000,
    hookTimeout: 240_000,
    pool: "forks",
    // Many tests wait for programs that they start: a third file keeps two cores busy.
    maxWorkers: 3,
    sequence: { sequencer: LongestFirst },
  },
});
