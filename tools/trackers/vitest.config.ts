import { mergeConfig } from "vitest/config";
import config from "../../vitest.config.ts";

const merged = mergeConfig(config, {});

/** As all tests, but those that need MLflow and TensorBoard. */
export default {
  ...merged,
  test: { ...merged.test, include: ["tools/trackers/**/*.e2e.test.ts"], exclude: ["**/node_modules/**"] },
};
