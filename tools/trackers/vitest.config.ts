import { defineConfig, mergeConfig } from "vitest/config";
import config from "../../vitest.config.ts";

/** As all tests, and those that need MLflow and TensorBoard: `npm run trackers` names them. */
export default mergeConfig(
  { ...config, test: { ...config.test, include: [], exclude: [] } },
  defineConfig({ test: { include: ["tools/trackers/**/*.e2e.test.ts"], exclude: ["**/node_modules/**"] } }),
);
