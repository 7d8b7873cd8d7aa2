import { Writable } from "node:stream";
import { Type } from "typebox";
import { testStack, type TestDatabase } from "@internevo/test-kit/stack";
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

/** A promise that somebody else resolves. */
export const signalled = <T = void>() => Promise.withResolvers<T>();
