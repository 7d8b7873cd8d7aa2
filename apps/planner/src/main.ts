import { runService } from "@internevo/service-kit";
import { planner } from "./app.ts";

await runService(planner);
