import { runService } from "@internevo/service-kit";
import { trialRunner } from "./app.ts";

await runService(trialRunner);
