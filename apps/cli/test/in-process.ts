import { Writable } from "node:stream";
import { run } from "../src/run.ts";

export interface Said {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** The program in this process, without a terminal. @param env what it sees of the environment */
export const cliIn =
  (env: NodeJS.ProcessEnv) =>
  async (...args: string[]): Promise<Said> => {
    let stdout = "";
    let stderr = "";
    const into = (append: (text: string) => void) =>
      new Writable({ write: (chunk: Buffer, _encoding, done) => (append(chunk.toString()), done()) });
    const status = await run(args, {
      stdout: into((text) => (stdout += text)),
      stderr: into((text) => (stderr += text)),
      env: { ...env, NO_COLOR: "1" },
    });
    return { status, stdout, stderr };
  };

export const cli = cliIn({});
