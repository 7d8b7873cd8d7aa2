import { defineConfig, mergeConfig } from "vitest/config";
import config from "../../vitest.config.ts";

/** As all tests, and those on a test cluster: `npm run kubernetes -- test` names them. */
export default mergeConfig(
  { ...config, test: { ...config.test, include: [], exclude: [] } },
  defineConfig({
    test: {
      include: ["tools/kubernetes/**/*.e2e.test.ts"],
      exclude: ["**/node_modules/**"],
      // Each has a control plane of its own.
      fileParallelism: false,
    },
  }),
);
