import { accessSync, constants, readdirSync } from "node:fs";
import { access } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import {
  ProbeConfigSchema,
  ProbeEventSchema,
  TrainerConfigSchema,
  TrainerEventSchema,
} from "@internevo/contracts";
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

const CUDA_LIBRARY = "libinternevo-cuda.so";

const isReadable = (path: string): boolean => {
  try {
    accessSync(path, constants.R_OK);
    return true;
  } catch {
    return false;
  }
};

/** What this machine offers to ranks on GPUs. */
export interface CudaHost {
  /**
   * Whether the native programs find the CUDA backend: beside them, or where `INTERNEVO_CUDA_LIBRARY` says.
   */
  readonly hasBackend: boolean;
  /** NVIDIA GPUs that this machine shows; null where that cannot be told. */
  readonly gpus: number | null;
}

/** GPUs by their device files: a container has those that it was given. */
function visibleGpus(): number | null {
  try {
    const names = readdirSync("/dev");
    // Windows shows its GPUs to Linux by one file of another name.
    return names.includes("dxg") ? null : names.filter((name) => /^nvidia\d+$/.test(name)).length;
  } catch {
    return null;
  }
}

/**
 * Looks for the CUDA backend as a program of an installation directory does
 * (`native/src/backend/device_library.cpp`).
 */
export function cudaHost(nativeDirectory: string, environment: NodeJS.ProcessEnv = process.env): CudaHost {
  const given = environment["INTERNEVO_CUDA_LIBRARY"] ?? "";
  const programs = dirname(trainerIn(nativeDirectory).path);
  const paths =
    given === "" ? [join(programs, "..", "lib", CUDA_LIBRARY), join(programs, CUDA_LIBRARY)] : [given];
  // A library of somebody's own may have devices of its own, and ranks may share one.
  const isOrdinary = given === "" && (environment["INTERNEVO_SHARE_GPU"] ?? "") === "";
  return { hasBackend: paths.some(isReadable), gpus: isOrdinary ? visibleGpus() : null };
}

/** @throws ProblemError `unavailable` when the program is not there or cannot be executed. */
export async function assertProgram(program: {
  readonly name: string;
  readonly path: string;
}): Promise<void> {
  try {
    await access(program.path, constants.X_OK);
  } catch (error) {
    throw new ProblemError(
      "unavailable",
      `${program.name} cannot be started: ${program.path} is not an executable file`,
      [
        {
          field: "INTERNEVO_NATIVE_DIRECTORY",
          value: program.path,
          message: "holds no such program",
          remedy:
            "build the native programs with `npm run setup`, or point " +
            "INTERNEVO_NATIVE_DIRECTORY to where they are installed",
        },
      ],
      { cause: error },
    );
  }
}
