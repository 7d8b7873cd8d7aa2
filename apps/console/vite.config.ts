import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

export default defineConfig({
  root: import.meta.dirname,
  base: "/",
  plugins: [react()],
  build: {
    outDir: "dist",
    emptyOutDir: true,
    target: "es2022",
    // Nothing is inlined as a data: or script text, so that a strict Content-Security-Policy holds.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: {
      // The shared schemas have no effect at import: what the console doesn't use of them (all of typebox) stays out.
      treeshake: {
        moduleSideEffects: (id: string) => !/\/libs\/(domain|contracts|client)\//.test(id) && !/\/node_modules\/typebox\//.test(id),
        propertyReadSideEffects: false,
        manualPureFunctions: ["Type", "nullable", "PageSchema", "factor", "paperModel", "Line", "zeroOr", "limit", "oneOrSome", "SlurmWord", "Seconds"],
      },
    },
  },
  server: { proxy: { "/api": process.env["INTERNEVO_API"] ?? "http://127.0.0.1:8080" } },
});
