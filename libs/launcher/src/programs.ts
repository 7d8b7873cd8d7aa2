import { constants } from "node:fs";
import { access } from "node:fs/promises";
import { join, resolve } from "node:path";
import { ProbeConfigSchema, ProbeEventSchema, TrainerConfigSchema, TrainerEventSchema } from "@internevo/contracts";
import { ProblemError } from "@internevo/domain";
import type { Static, TSchema } from "typebox";

/** A native program: where it is, and the shapes of what goes in and comes out. */
export interface NativeProgram<Config extends TSchema, Event extends TSchema> {
  readonly name: string;
  readonly path: string;
  readonly configSchema: Config;
  readonly eventSchema: Event;
}

export type Trainer = NativeProgram<typeof TrainerConfigSchema, typeof TrainerEventSchema>;
export type Probe = NativeProgram<typeof ProbeConfigSchema, typeof ProbeEventSchema>;
export type EventOf<P> = P extends NativeProgram<TSchema, infer Event> ? Static<Event> : never;
export type ConfigOf<P> = P extends NativeProgram<infer Config, TSchema> ? Static<Config> : never;

/** The trainer of an installation directory (what `cmake --install` filled). */
export const trainerIn = (nativeDirectory: string): Trainer => ({
  name: "internevo-trainer",
  path: resolve(join(nativeDirectory, "bin", "internevo-trainer")),
  configSchema: TrainerConfigSchema,
  eventSchema: TrainerEventSchema,
});

/** The probe of an installation directory. */
export const probeIn = (nativeDirectory: string): Probe => ({
  name: "internevo-probe",
  path: resolve(join(nativeDirectory, "bin", "internevo-probe")),
  configSchema: ProbeConfigSchema,
  eventSchema: ProbeEventSchema,
});

/** @throws ProblemError `unavailable` when the program is not there or cannot be executed. */
export async function assertProgram(program: { readonly name: string; readonly path: string }): Promise<void> {
  try {
    await access(program.path, constants.X_OK);
  } catch (error) {
    throw new ProblemError(
      "unavailable",
      `${program.name} cannot be started: ${program.path} is not an executable file`,
      [{ field: "INTERNEVO_NATIVE_DIRECTORY", value: program.path, message: "holds no such program", remedy: "build the native programs with `npm run setup`, or point INTERNEVO_NATIVE_DIRECTORY to where they are installed" }],
      { cause: error },
    );
  }
}
