import { defineConfig } from "vitest/config";
import { withRealParts } from "../../vitest.config.ts";

/** Tests with real parts that last minutes on an idle machine: `npm run testbed -- replan` names them. */
export default defineConfig({
  test: { ...withRealParts, include: ["tools/testbed/**/*.e2e.test.ts"], passWithNoTests: false },
});
