import { expect } from "vitest";
import { run, type Ended } from "./processes.ts";

/** The commands of backups of the stack in the folder `old`. @param folder where a name lies */
export const backupsIn = (folder: (name: string) => string) => ({
  backUp: (to: string): Promise<Ended> => run(["backup", folder(to), "--data-directory", folder("old")]),
  restore: (from: string, into: string, ...more: string[]): Promise<Ended> =>
    run(["restore", folder(from), "--data-directory", folder(into), ...more]),
});

/** What a command said that must have succeeded. */
export async function ok(ended: Promise<Ended>): Promise<Ended> {
  const said = await ended;
  expect([said.status, said.stderr]).toEqual([0, expect.any(String)]);
  return said;
}
