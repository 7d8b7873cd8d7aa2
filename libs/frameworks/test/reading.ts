import { ProblemError } from "@internevo/domain";
import { expect } from "vitest";
import { importConfiguration, type Framework, type FrameworkFile } from "../src/index.ts";

export const read = (framework: Framework, files: readonly FrameworkFile[]) =>
  importConfiguration(framework, files as [FrameworkFile, ...FrameworkFile[]]);

/** The faults of a refused import, as `field: message → remedy`; none where it is read. */
export function faultsOf(framework: Framework, ...files: FrameworkFile[]): string[] {
  try {
    read(framework, files);
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    for (const { field, message, remedy } of error.details)
      expect([field, message, remedy].every((text) => text.length > 0)).toBe(true);
    return error.details.map(({ field, message, remedy }) => `${field}: ${message} → ${remedy}`);
  }
  return [];
}
