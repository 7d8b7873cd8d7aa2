import { defineConfig } from "vitest/config";
import { LONG_TESTS, OF_PROGRAMS, withRealParts } from "./vitest.config.ts";

/** One file at a time: ranks of two would wait for each other's, and take many times as long. */
export default defineConfig({
  test: {
    ...withRealParts,
    ...OF_PROGRAMS,
    name: "long",
    include: [LONG_TESTS],
    exclude: ["**/node_modules/**"],
    passWithNoTests: false,
    fileParallelism: false,
  },
});
