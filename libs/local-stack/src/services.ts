import { join } from "node:path";
import { SERVICE_NAMES } from "@internevo/domain";
import type { ServiceProcess } from "./stack.ts";

/** All services of this checkout. */
export function productServices(): ServiceProcess[] {
  const apps = join(import.meta.dirname, "..", "..", "..", "apps");
  return SERVICE_NAMES.map((name) => ({ name, entry: join(apps, name, "src", "main.ts") }));
}
