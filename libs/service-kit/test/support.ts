import { Writable } from "node:stream";
import { Type } from "typebox";
import { testStack, type TestDatabase } from "@internevo/local-stack/test-stack";
import { startService, type RunningService, type Service } from "../src/service.ts";

const silence = new Writable({ write: (_chunk, _encoding, done) => done() });

/** A service of a test, in this process, on the test's own database and namespace. */
export const startTestService = (
  test: {
    readonly database: Pick<TestDatabase, "url">;
    readonly namespace: string;
    readonly natsUrl?: string;
    readonly name?: string;
  },
  start: (service: Service<object>) => Promise<void> | void,
): Promise<RunningService> =>
  startService(
    { name: test.name ?? "tested", configSchema: Type.Object({}), start },
    {
      environment: {
        DATABASE_URL: test.database.url,
        NATS_URL: test.natsUrl ?? testStack().natsUrl,
        INTERNEVO_NAMESPACE: test.namespace,
      },
      ...(process.env["SHOW_LOGS"] ? {} : { logDestination: silence }),
    },
  );

/**
 * Looks again and again until something is true, because what happens is told by another process. @throws
 * after `seconds`.
 */
export async function eventually(
  what: string,
  check: () => Promise<boolean> | boolean,
  seconds = 90,
): Promise<void> {
  const deadline = performance.now() + seconds * 1000;
  while (!(await check())) {
    if (performance.now() > deadline) throw new Error(`${what} did not happen within ${seconds} s`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** A promise that somebody else resolves. */
export const signalled = <T = void>() => Promise.withResolvers<T>();
