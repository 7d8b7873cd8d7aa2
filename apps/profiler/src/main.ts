import { runService } from "@internevo/service-kit";
import { profiler } from "./app.ts";

await runService(profiler);
