// A process of its own that asks the API at a given rate, whether or not earlier answers have come (an open loop):
// a slow server does not make it ask less. It is told its order by a message, and answers by one.
import { setMaxListeners } from "node:events";
import { Agent, get } from "node:http";
import { drawnByWeight, drawnOf, randomBy } from "../drawn.ts";
import { QUESTIONS, quantilesOf, type LoadOrder, type LoadResult, type Question } from "./messages.ts";

const GRACE_MILLISECONDS = 5000;
/** Requests that wait for answers; with so many open, what is due is not sent, and counts as not answered. */
const MOST_OPEN = 2000;
const agent = new Agent({ keepAlive: true, maxSockets: 200 });

/** The status of an answer, or the code of the error instead of it; `ABORT_ERR` where the signal came first. */
function status(url: string, token: string, signal: AbortSignal): Promise<string> {
  return new Promise((resolve) => {
    const headers = { authorization: `Bearer ${token}` };
    const request = get(url, { agent, headers, signal }, (response) => {
      response.on("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
      response.on("end", () => resolve(String(response.statusCode)));
      response.resume();
    });
    request.on("error", (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
  });
}

function pathOf(question: Question, order: LoadOrder, random: () => number): string {
  switch (question) {
    case "one job":
      return `/jobs/${drawnOf(order.jobs, random)}`;
    case "page of jobs":
      return "/jobs?limit=50";
    case "page of an owner's jobs":
      return `/jobs?limit=50&owner=${encodeURIComponent(drawnOf(order.owners, random))}`;
    case "page of queued jobs":
      return "/jobs?limit=50&state=queued";
    case "page of a job's steps":
      return `/jobs/${drawnOf(order.trained, random)}/metrics?limit=200&after=${Math.floor(random() * order.stepsOfAJob)}`;
    case "page of a job's log":
      return `/jobs/${drawnOf(order.jobs, random)}/log`;
    case "who am I":
      return "/whoami";
    case "clusters":
      return "/clusters";
    case "profiles":
      return "/profiles";
    case "usage of a month":
      return "/usage?by=project";
  }
}

async function load(order: LoadOrder): Promise<LoadResult> {
  const random = randomBy(order.seed);
  const samples: { readonly question: Question; readonly dueAt: number; milliseconds: number }[] = [];
  const late: number[] = [];
  const refused: Record<string, number> = {};
  const begin = performance.now();
  const end = begin + 1000 * order.seconds;
  const open = new Set<Promise<void>>();
  const stop = new AbortController();
  setMaxListeners(0, stop.signal);
  let count = 0;
  async function ask(dueAt: number): Promise<void> {
    const { name: question } = drawnByWeight(QUESTIONS, ({ weight }) => weight, random);
    const token = order.tokens[count++ % order.tokens.length] as string;
    const path = pathOf(question, order, random);
    late.push(performance.now() - dueAt);
    const said = await status(order.apiUrl + path, token, stop.signal);
    const milliseconds = performance.now() - dueAt;
    if (said === "200") samples.push({ question, dueAt, milliseconds });
    else refused[`${said} ${question}`] = (refused[`${said} ${question}`] ?? 0) + 1;
  }
  // Gaps of the exponential distribution: callers know nothing of each other.
  let dueAt = begin;
  const next = (): void => void (dueAt += (-Math.log(1 - random()) * 1000) / order.requestsPerSecond);
  next();
  while (dueAt < end) {
    for (; dueAt <= performance.now() && dueAt < end; next()) {
      if (open.size >= MOST_OPEN) {
        refused["not sent"] = (refused["not sent"] ?? 0) + 1;
        continue;
      }
      const asked = ask(dueAt).finally(() => open.delete(asked));
      open.add(asked);
    }
    await new Promise((resolve) => setTimeout(resolve, Math.max(0, dueAt - performance.now())));
  }
  // What an overloaded server has not answered soon is not waited for.
  const grace = setTimeout(() => stop.abort(), GRACE_MILLISECONDS);
  await Promise.all(open);
  clearTimeout(grace);
  agent.destroy();
  const of = (list: typeof samples) => quantilesOf(list.map(({ milliseconds }) => milliseconds));
  return {
    answered: samples.length,
    refused,
    milliseconds: of(samples),
    ofQuestions: Object.fromEntries(
      QUESTIONS.map(({ name }) => [name, of(samples.filter(({ question }) => question === name))]),
    ),
    ofMinutes: Array.from({ length: Math.ceil(order.seconds / 60) }, (_, minute) =>
      of(samples.filter((each) => Math.floor((each.dueAt - begin) / 60_000) === minute)),
    ),
    sentLateMilliseconds: quantilesOf(late),
  };
}

process.once("message", (order: LoadOrder) => {
  void load(order).then((result) => process.send?.(result, () => process.disconnect()));
});
