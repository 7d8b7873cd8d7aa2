import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";

// Installations of one machine wait for each other's measurements. Test files that run side by side are
// machines of their own.
const machine = mkdtempSync(join(tmpdir(), "internevo-test-machine-"));
process.env["INTERNEVO_MACHINE_DIRECTORY"] = machine;
afterAll(() => rmSync(machine, { recursive: true, force: true }));
