import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

/** Smaller forms of what is built lie beside it, so that the API sends them without any work. */
function compressed(): Plugin {
  return {
    name: "compressed",
    apply: "build",
    writeBundle({ dir = "" }) {
      for (const name of readdirSync(join(dir, "assets"))) {
        if (!/\.(?:js|css|svg)$/.test(name)) continue;
        const path = join(dir, "assets", name);
        const bytes = readFileSync(path);
        writeFileSync(
          `${path}.br`,
          brotliCompressSync(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } }),
        );
        writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }));
      }
    },
  };
}

export default defineConfig({
  root: import.meta.dirname,
  base: "/",
  plugins: [react(), compressed()],
  build: {
    outDir: "dist",
    emptyOutDir: true,
    target: "es2022",
    // Nothing is inlined as a data: or script text, so that a strict Content-Security-Policy holds.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: {
      // The shared schemas have no effect at import: what the console doesn't use of them (all of typebox)
      // stays out.
      treeshake: {
        moduleSideEffects: (id: string) =>
          !/\/libs\/(domain|contracts|client)\//.test(id) && !/\/node_modules\/typebox\//.test(id),
        propertyReadSideEffects: false,
        manualPureFunctions: [
          "Type",
          "nullable",
          "PageSchema",
          "factor",
          "planSchema",
          "planConstraintsSchema",
          "paperModel",
          "Line",
          "VisibleName",
          "zeroOr",
          "limit",
          "Seconds",
          "seconds",
          "splitProperties",
          "inEachFormat",
          "textData",
          "fileData",
          "aboutNamedModels",
          "aboutMemory",
          "aboutFewerNodes",
          "CountSchema",
          "tokens",
          "timeOfDay",
          "daysOf",
          "ofEachKind",
          "orNull",
          "HistoryPageSchema",
        ],
      },
    },
  },
  server: { proxy: { "/api": process.env["INTERNEVO_API"] ?? "http://127.0.0.1:8080" } },
});
