import { defineConfig } from "vitest/config";
import { withRealParts } from "../../vitest.config.ts";

/** Tests with real parts with MLflow and TensorBoard: `npm run trackers` names them. */
export default defineConfig({
  test: { ...withRealParts, include: ["tools/trackers/**/*.e2e.test.ts"], passWithNoTests: false },
});
