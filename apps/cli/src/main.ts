import { run } from "./run.ts";

// A reader that has seen enough (`internevo ps | head`) is no error; a full disk is one, and no crash.
// A terminal that was closed (EIO) sends SIGHUP, which ends everything in order.
process.stdout.on("error", ({ code, message }: NodeJS.ErrnoException) => {
  if (code === "EPIPE") process.exit(0);
  if (code === "EIO") return;
  process.stderr.write(`internevo: standard output cannot be written (${code ?? message})\n`, () =>
    process.exit(1),
  );
});
process.stderr.on("error", ({ code }: NodeJS.ErrnoException) => {
  // Whoever does not listen to errors is not told of them.
  if (code !== "EPIPE" && code !== "EIO") process.exit(1);
});

process.exitCode = await run(process.argv.slice(2), {
  stdout: process.stdout,
  stderr: process.stderr,
  env: process.env,
});
