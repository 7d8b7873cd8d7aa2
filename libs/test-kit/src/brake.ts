import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const ROOT = join(import.meta.dirname, "..", "..", "..");
const GATES = ["first", "second"] as const;
export type Gate = (typeof GATES)[number];

/**
 * Holds ranks back from a place that a test chooses, however fast the machine is: a pipe that nobody empties
 * stops them.
 */
export interface Brake {
  /** Lines that a rank says before each gate; behind it, a pipe holds some hundred more. */
  readonly lines: number;
  /** Goes before a rank's own command. */
  readonly command: readonly string[];
  /** Native programs whose trainer is braked, for INTERNEVO_NATIVE_DIRECTORY. */
  readonly nativeDirectory: string;
  /** Lets ranks go on: all of them, and those to come. */
  open(...gates: Gate[]): void;
  close(): void;
  dispose(): void;
}

/**
 * @param kind `slow`: a line now and then still passes, so that a rank can say why it ends; `hold`: none, for
 * as long as it takes, and the ranks'
 *   own watchdog must be off.
 */
export function createBrake(lines: number, kind: "slow" | "hold" = "slow"): Brake {
  const directory = mkdtempSync(join(tmpdir(), "internevo-brake-"));
  const fileOf = (gate: Gate): string => join(directory, gate);
  const command = [
    "bash",
    join(import.meta.dirname, "brake.sh"),
    kind === "hold" ? "hold" : "0.2",
    ...GATES.flatMap((gate) => [String(lines), fileOf(gate)]),
    "--",
  ];
  const native = join(process.env["INTERNEVO_NATIVE_DIRECTORY"] ?? join(ROOT, "native", "dist"), "bin");
  mkdirSync(join(directory, "bin"));
  writeFileSync(
    join(directory, "bin", "internevo-trainer"),
    `#!/bin/bash\nexec ${[...command, join(native, "internevo-trainer")].map((word) => `'${word}'`).join(" ")} "$@"\n`,
    { mode: 0o755 },
  );
  symlinkSync(join(native, "internevo-probe"), join(directory, "bin", "internevo-probe"));
  return {
    lines,
    command,
    nativeDirectory: directory,
    open: (...gates) => gates.forEach((gate) => writeFileSync(fileOf(gate), "")),
    close: () => GATES.forEach((gate) => rmSync(fileOf(gate), { force: true })),
    dispose: () => rmSync(directory, { recursive: true, force: true }),
  };
}
