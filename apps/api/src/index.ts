export { buildApi, type ApiOptions } from "./app.ts";
export { apiService } from "./service.ts";
