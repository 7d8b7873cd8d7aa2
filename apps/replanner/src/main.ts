import { runService } from "@internevo/service-kit";
import { replanner } from "./app.ts";

await runService(replanner);
