import { runService } from "@internevo/service-kit";
import { apiService } from "./service.ts";

await runService(apiService);
