export { backUp, type BackupOptions } from "./backup.ts";
export type { Manifest } from "./manifest.ts";
export { restore, type Restored, type RestoreOptions } from "./restore.ts";
export { withDatabaseOf } from "./stack-database.ts";
