import { startLocalStack } from "../src/index.ts";

/** A stack in a process of its own, for tests that kill it. Says "ready", and stops at SIGTERM. */
const [dataDirectory, serviceEntry] = process.argv.slice(2);
if (dataDirectory === undefined) throw new Error("no directory is given");
const stack = await startLocalStack({
  dataDirectory,
  databaseUrl: "",
  natsUrl: "",
  services: serviceEntry === undefined ? [] : [{ name: "sleeper", entry: serviceEntry }],
});
console.log("ready");
process.on("SIGTERM", () => void stack.stop().then(() => process.exit(0)));
