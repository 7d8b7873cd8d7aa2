import { spawn } from "node:child_process";

/** A service with a child of its own, neither of which listens to SIGTERM. */
process.on("SIGTERM", () => {});
spawn("sh", ["-c", "trap '' TERM; while true; do sleep 1; done"], { stdio: "ignore" });
console.log(JSON.stringify({ event: "ready", healthUrl: "http://127.0.0.1:1" }));
setInterval(() => {}, 1000);
