import type { Writable } from "node:stream";
import { ProblemError, type JobState } from "@internevo/domain";
import { getTableName, is } from "drizzle-orm";
import { PgTable } from "drizzle-orm/pg-core";
import pg from "pg";
import * as schema from "../schema/index.ts";
import { storedStepOf } from "../last-step.ts";
import { copyOut } from "./copy.ts";
import { newestMigration, type MigrationMark } from "../migrations.ts";

/** A table as it is copied: its columns in the order of the copy. */
export interface CopiedTable {
  readonly name: string;
  readonly columns: readonly string[];
}

/** How far a sequence has counted. */
export interface SequenceValue {
  readonly name: string;
  /** As text: it may be beyond what a number holds exactly. */
  readonly value: string;
}

/** A job as a snapshot has it, with what its checkpoints must agree with. */
export interface JobStand {
  readonly jobId: string;
  readonly state: JobState;
  /** Steps between two checkpoints; null: it writes none. */
  readonly everySteps: number | null;
  /** Its newest attempt; null: its training has not begun. */
  readonly attempt: number | null;
  readonly resumedFromStep: number;
  /** Of the newest checkpoint that this attempt announced; null: none yet. */
  readonly announcedStep: number | null;
  /**
   * The last step that its newest attempt can go on from: up to where it resumed, and then its own without a gap.
   * Of a job that has ended, or has not trained yet, 0.
   */
  readonly storedSteps: number;
}

/** What a snapshot says before its tables are copied. */
export interface Snapshot {
  /** ISO 8601, in UTC. */
  readonly takenAt: string;
  readonly serverVersion: string;
  readonly databaseBytes: number;
  readonly migration: MigrationMark;
  readonly jobs: readonly JobStand[];
  readonly workloadIds: readonly string[];
}

/** Tables of this version. Others may have added theirs. */
const OWN_TABLES: ReadonlySet<string> = new Set(
  Object.values(schema).flatMap((each) => (is(each, PgTable) ? [getTableName(each)] : [])),
);

/** Any number that no other program in the database locks. */
const BACKUP_LOCK = "7226034559411004";

const STANDS = `
  select j.id as "jobId", j.state, (j.spec #>> '{checkpointing,everySteps}')::int as "everySteps",
    a.number as attempt, coalesce(a.resumed_from_step, 0) as "resumedFromStep",
    a.checkpoint_step as "announcedStep",
    case when j.ended_at is not null or a.number is null then 0
      else ${storedStepOf("r.id", "a.number", "a.resumed_from_step")} end as "storedSteps"
  from jobs j
    left join runs r on r.job_id = j.id
    left join lateral (
      select number, resumed_from_step, checkpoint_step from attempts
      where run_id = r.id order by number desc limit 1) a on true
  order by j.ended_at is not null, j.id`;

const TABLES = `
  select c.relname as name, array_agg(a.attname::text order by a.attnum) as columns
  from pg_class c join pg_attribute a on a.attrelid = c.oid
  where c.relnamespace = 'public'::regnamespace and c.relkind = 'r'
    and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
  group by c.relname order by c.relname`;

const noDatabase = (cause: unknown): ProblemError =>
  new ProblemError(
    "bad-request",
    "the database is not one of InternEvo's",
    [
      {
        field: "DATABASE_URL",
        message: "names a database without the tables of InternEvo",
        remedy: "name the database that the services use, or start the stack once, which makes it",
      },
    ],
    { cause },
  );

export const quoted = (name: string): string => pg.escapeIdentifier(name);
export const columnList = ({ columns }: CopiedTable): string => columns.map(quoted).join(", ");

/**
 * A connection that reads a database as it was at one moment, while others write to it. Its methods are called
 * one after the other.
 */
export class SnapshotReader {
  readonly #client: pg.Client;

  private constructor(client: pg.Client) {
    this.#client = client;
  }

  /** @throws what `pg` says where the database cannot be reached. */
  static async open(url: string): Promise<SnapshotReader> {
    const client = new pg.Client({
      connectionString: url,
      application_name: "internevo-backup",
      connectionTimeoutMillis: 5000,
      keepAlive: true,
    });
    // The query that runs fails with it.
    client.on("error", () => {});
    await client.connect();
    return new SnapshotReader(client);
  }

  /** Lets one backup of this database run at a time. @returns false while another runs. It ends with `close`. */
  async lock(): Promise<boolean> {
    const { rows } = await this.#client.query<{ got: boolean }>(
      `select pg_try_advisory_lock(${BACKUP_LOCK}) as got`,
    );
    return rows[0]?.got === true;
  }

  /**
   * Takes a snapshot, in place of one that was taken before. @throws ProblemError `bad-request` for a database
   * that is not InternEvo's.
   */
  async take(): Promise<Snapshot> {
    await this.release();
    await this.#client.query("begin isolation level repeatable read read only");
    try {
      // The first statement is the moment of the snapshot.
      const { rows } = await this.#client.query<Omit<Snapshot, "jobs" | "workloadIds" | "migration">>(`
        select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "takenAt",
          current_setting('server_version') as "serverVersion",
          pg_database_size(current_database())::float8 as "databaseBytes"`);
      const jobs = await this.#client.query<JobStand>(STANDS);
      const workloads = await this.#client.query<{ id: string }>("select id from workloads");
      const migrations = await this.#client.query<MigrationMark>(
        'select created_at::float8 as "createdAt", hash from drizzle.__drizzle_migrations order by created_at desc limit 1',
      );
      const [row] = rows;
      const [migration] = migrations.rows;
      if (row === undefined || migration === undefined) throw noDatabase(undefined);
      return { ...row, migration, jobs: jobs.rows, workloadIds: workloads.rows.map(({ id }) => id) };
    } catch (error) {
      // 42P01, 3F000: there is no such table, or schema.
      if (["42P01", "3F000"].includes((error as { code?: string }).code ?? "")) throw noDatabase(error);
      throw error;
    }
  }

  /**
   * The product's tables in the snapshot, and the names of others. Nobody changes their columns before it is
   * released.
   */
  async tables({
    migration,
  }: Snapshot): Promise<{ readonly own: readonly CopiedTable[]; readonly others: readonly string[] }> {
    const { rows } = await this.#client.query<CopiedTable>(TABLES);
    // An older version may have had tables that this one does not know.
    const isOwn = ({ name }: CopiedTable): boolean =>
      OWN_TABLES.has(name) || migration.createdAt !== newestMigration().createdAt;
    const own = rows.filter(isOwn);
    await this.#client.query(
      `lock table ${own.map(({ name }) => quoted(name)).join(", ")} in access share mode`,
    );
    return { own, others: rows.filter((row) => !isOwn(row)).map(({ name }) => name) };
  }

  /** Writes a table as `copy` has it, as text. The stream is left open. @returns how many rows. */
  copyTable(table: CopiedTable, sink: Writable): Promise<number> {
    return copyOut(this.#client, `copy ${quoted(table.name)} (${columnList(table)}) to stdout`, sink);
  }

  /** Those of some tables, as they are now, which is not less than in the snapshot. */
  async sequences(tables: readonly CopiedTable[]): Promise<readonly SequenceValue[]> {
    const { rows } = await this.#client.query<SequenceValue>(
      `select s.sequencename as name, s.last_value::text as value
      from pg_sequences s
        join pg_class c on c.relname = s.sequencename and c.relnamespace = 'public'::regnamespace
        join pg_depend d on d.objid = c.oid and d.deptype = 'a'
        join pg_class t on t.oid = d.refobjid
      where s.schemaname = 'public' and s.last_value is not null and t.relname = any($1)
      order by s.sequencename`,
      [tables.map(({ name }) => name)],
    );
    return rows;
  }

  /** Ends the snapshot: the database may forget what is older than now. */
  async release(): Promise<void> {
    await this.#client.query("rollback");
  }

  /** Ends snapshot, lock and connection. */
  async close(): Promise<void> {
    // It may be lost already.
    await this.#client.end().catch(() => {});
  }
}
