import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findNatsServer } from "@internevo/local-stack";
import { eventually } from "./eventually.ts";

/** A broker that only one test uses, and may hold still or fill. */
export interface OwnNats {
  readonly url: string;
  freeze(): void;
  thaw(): void;
  stop(): void;
}

/** @param fileStoreBytes that its streams may hold together */
export async function startOwnNats(fileStoreBytes: number): Promise<OwnNats> {
  const directory = mkdtempSync(join(tmpdir(), "internevo-own-nats-"));
  const configuration = join(directory, "nats.conf");
  const settings = {
    host: "127.0.0.1",
    port: -1,
    ports_file_dir: directory,
    jetstream: { store_dir: join(directory, "store"), max_file_store: fileStoreBytes },
  };
  writeFileSync(configuration, JSON.stringify(settings));
  const server = spawn(findNatsServer(), ["-c", configuration], { stdio: "ignore" });
  const url = await eventually("the broker says its port", () => {
    try {
      const ports = readFileSync(join(directory, `nats-server_${server.pid}.ports`), "utf8");
      return (JSON.parse(ports) as { nats: string[] }).nats[0];
    } catch {
      return undefined;
    }
  });
  return {
    url,
    freeze: () => void server.kill("SIGSTOP"),
    thaw: () => void server.kill("SIGCONT"),
    stop() {
      server.kill("SIGKILL");
      rmSync(directory, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}
