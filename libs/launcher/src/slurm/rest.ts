import { readFileSync } from "node:fs";
import { request as httpRequest, type IncomingMessage, type RequestOptions } from "node:http";
import { request as httpsRequest } from "node:https";
import { saveSecondsOf } from "./cli.ts";
import {
  accountedJob,
  jobsOf,
  nodesOf,
  SlurmAwayError,
  SlurmRefusalError,
  type SlurmControl,
  type SlurmRequest,
} from "./control.ts";
import type { SlurmSettings } from "./settings.ts";

const ANSWER_MILLISECONDS = 60_000;
const MOST_BYTES = 1 << 28;

type Rest = NonNullable<SlurmSettings["rest"]>;
type Json = Readonly<Record<string, unknown>>;

/** The body that submits a request. */
export function restSubmission(request: SlurmRequest, script: string): Json {
  const { settings } = request;
  return {
    script,
    job: {
      name: request.name,
      comment: request.comment,
      requeue: false,
      nodes: [request.nodes, request.nodes],
      tasks: request.nodes * request.ranksPerNode,
      tasks_per_node: request.ranksPerNode,
      cpus_per_task: request.threadsPerRank,
      ...((settings.exclusive ?? true) ? { exclusive: "exclusive" } : {}),
      ...(settings.partition === undefined ? {} : { partition: settings.partition }),
      ...(settings.account === undefined ? {} : { account: settings.account }),
      ...(settings.qos === undefined ? {} : { qos: settings.qos }),
      ...(settings.constraint === undefined ? {} : { constraints: settings.constraint }),
      ...(settings.reservation === undefined ? {} : { reservation: settings.reservation }),
      ...(settings.gres === undefined
        ? {}
        : {
            tres_per_node: settings.gres
              .split(",")
              .map((each) => `gres:${each.replace(/^gres:/, "")}`)
              .join(","),
          }),
      ...(settings.memoryPerNodeBytes === undefined
        ? {}
        : { memory_per_node: Math.ceil(settings.memoryPerNodeBytes / 2 ** 20) }),
      // Whole minutes here.
      ...(request.timeLimitSeconds === undefined
        ? {}
        : { time_limit: Math.ceil(request.timeLimitSeconds / 60) }),
      // To the ranks themselves: this interface knows no signal to the script.
      signal: `USR1@${saveSecondsOf(request)}`,
      current_working_directory: request.directory,
      standard_output: request.logPath,
      standard_error: request.logPath,
      open_mode: "append",
      environment: request.environment,
    },
  };
}

/** @throws SlurmAwayError where the token's file cannot be read. */
function tokenOf(file: string): string {
  try {
    return readFileSync(file, "utf8").trim();
  } catch (error) {
    throw new SlurmAwayError(`the token file ${file} cannot be read: ${(error as Error).message}`, {
      cause: error,
    });
  }
}

interface Question {
  readonly target: URL;
  readonly options: RequestOptions;
  readonly text: string | undefined;
}

function questionOf(
  rest: Rest,
  method: string,
  path: string,
  body: Json | undefined,
  part: string,
): Question {
  const unix = rest.url.startsWith("unix:") ? rest.url.slice("unix:".length) : undefined;
  const target = new URL(
    `/${part}/${rest.version ?? "v0.0.38"}${path}`,
    unix === undefined ? rest.url : "http://localhost",
  );
  const text = body === undefined ? undefined : JSON.stringify(body);
  const headers: Record<string, string> = {
    accept: "application/json",
    ...(rest.tokenFile === undefined ? {} : { "X-SLURM-USER-TOKEN": tokenOf(rest.tokenFile) }),
    ...(text === undefined
      ? {}
      : { "content-type": "application/json", "content-length": String(Buffer.byteLength(text)) }),
  };
  const options = {
    method,
    headers,
    timeout: ANSWER_MILLISECONDS,
    ...(unix === undefined ? {} : { socketPath: unix }),
  };
  return { target, options, text };
}

/** The text that is answered, and its status. */
const answerTo = ({ target, options, text }: Question): Promise<{ status: number; said: string }> =>
  new Promise((resolve, reject) => {
    const question = (target.protocol === "https:" ? httpsRequest : httpRequest)(
      target,
      options,
      (answer: IncomingMessage) => {
        const chunks: Buffer[] = [];
        let bytes = 0;
        answer.on("data", (chunk: Buffer) => {
          chunks.push(chunk);
          bytes += chunk.length;
          if (bytes > MOST_BYTES) answer.destroy(new Error(`it answers more than ${MOST_BYTES} bytes`));
        });
        answer.once("error", reject);
        answer.once("end", () =>
          resolve({ status: answer.statusCode ?? 0, said: Buffer.concat(chunks).toString("utf8") }),
        );
      },
    );
    question.once("timeout", () =>
      question.destroy(new Error(`no answer within ${ANSWER_MILLISECONDS / 1000} s`)),
    );
    question.once("error", reject);
    question.end(text);
  });

const away = (error: Error): SlurmAwayError =>
  new SlurmAwayError(`slurmrestd does not answer: ${error.message}`, { cause: error });

/** @throws SlurmAwayError or SlurmRefusalError for an answer that tells of errors. */
function assertAccepted(status: number, parsed: Json): void {
  const errors = (Array.isArray(parsed["errors"]) ? parsed["errors"] : []) as readonly {
    readonly error?: string;
    readonly description?: string;
    readonly error_number?: number;
  }[];
  if (status < 400 && errors.length === 0) return;
  const words =
    errors.map((each) => [each.error, each.description].filter(Boolean).join(": ")).join("; ") ||
    `status ${status}`;
  if (
    /Unable to contact|timed out|Connection refused|Zero Bytes|authentication/i.test(words) ||
    status === 401 ||
    status === 403
  )
    throw new SlurmAwayError(words);
  throw new SlurmRefusalError(words);
}

async function call(
  rest: Rest,
  method: string,
  path: string,
  body: Json | undefined,
  part = "slurm",
): Promise<unknown> {
  const { status, said } = await answerTo(questionOf(rest, method, path, body, part)).catch(
    (error: unknown) => {
      throw error instanceof SlurmAwayError ? error : away(error as Error);
    },
  );
  let parsed: Json;
  try {
    parsed = JSON.parse(said) as Json;
    if (parsed === null) throw new TypeError("it is null");
  } catch {
    if (status === 401 || status === 403)
      throw new SlurmAwayError(`slurmrestd refuses the token (${status})`);
    throw away(new Error(`it answers ${status} and no JSON: ${said.slice(0, 200)}`));
  }
  assertAccepted(status, parsed);
  return parsed;
}

/** Slurm by its REST interface. */
export const slurmRest = (rest: Rest): SlurmControl => ({
  async submit(request) {
    const answer = (await call(
      rest,
      "POST",
      "/job/submit",
      restSubmission(request, readFileSync(request.scriptPath, "utf8")),
    )) as Json;
    const id = answer["job_id"];
    if (typeof id !== "number" || id < 1)
      throw new SlurmAwayError(
        `slurmrestd answered no job's number: ${JSON.stringify(answer).slice(0, 200)}`,
      );
    return id;
  },
  jobsNamed: async (name) =>
    jobsOf(await call(rest, "GET", "/jobs", undefined)).filter((job) => job.name === name),
  async cancel(id) {
    await call(rest, "DELETE", `/job/${id}`, undefined).catch((error: unknown) => {
      if (!(error instanceof SlurmRefusalError) || !/Invalid job id|already/i.test(error.message))
        throw error;
    });
  },
  // To the ranks themselves: they take it as they take it from their launcher.
  async askToEnd(id) {
    await call(rest, "DELETE", `/job/${id}?signal=USR1`, undefined);
  },
  nodes: async () => nodesOf(await call(rest, "GET", "/nodes", undefined)),
  async accounted(id, name) {
    try {
      return accountedJob(await call(rest, "GET", `/job/${id}`, undefined, "slurmdb"), id, name);
    } catch (error) {
      if (error instanceof SlurmAwayError || error instanceof SlurmRefusalError) return error.message;
      throw error;
    }
  },
});
