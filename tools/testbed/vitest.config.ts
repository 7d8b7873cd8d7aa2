import { defineConfig, mergeConfig } from "vitest/config";
import config from "../../vitest.config.ts";

/** As all tests, and those that last minutes on an idle machine: `npm run testbed -- replan` names them. */
export default mergeConfig(
  { ...config, test: { ...config.test, include: [], exclude: [] } },
  defineConfig({ test: { include: ["tools/testbed/**/*.e2e.test.ts"], exclude: ["**/node_modules/**"] } }),
);
