import { defineConfig } from "vitest/config";
import { withRealParts } from "../../vitest.config.ts";

/** Tests with real parts on a test cluster: `npm run kubernetes -- test` names them. */
export default defineConfig({
  test: {
    ...withRealParts,
    include: ["tools/kubernetes/**/*.e2e.test.ts"],
    passWithNoTests: false,
    // Each has a control plane of its own.
    fileParallelism: false,
  },
});
