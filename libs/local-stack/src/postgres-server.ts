/** What starts a Postgres of its own, apart from a stack: for tests of several. */
export { findPostgres } from "./postgres-binaries.ts";
export { preparePostgresHome, type PostgresHome } from "./postgres-identity.ts";
export {
  initialisePostgres,
  postgresProcess,
  postgresUrl,
  runAsOwner,
  waitForPostgres,
  type PostgresSettings,
} from "./postgres.ts";
export { supervise, type SupervisedProcess } from "./supervisor.ts";
