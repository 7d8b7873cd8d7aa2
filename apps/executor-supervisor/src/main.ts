import { runService } from "@internevo/service-kit";
import { executorSupervisor } from "./app.ts";

await runService(executorSupervisor);
