import { formatMoment } from "@internevo/domain";
import type { Command } from "commander";
import { dataDirectoryOf, type Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { table } from "../output.ts";
import { stackStatus, type ServiceStatus } from "../stack-status.ts";
import { showStack } from "./stack.ts";

export function addStatus(program: Command, context: Context): void {
  program
    .command("status")
    .description("what runs in a data directory: the console's link, signed in, and how every service is")
    .action(async () => {
      const output = context.output();
      const { dataDirectory, info, services } = await stackStatus(dataDirectoryOf(context), context.signal);
      if (info === undefined || info.apiUrl === null) {
        context.setExitCode(EXIT.unavailable);
        if (output.json)
          output.document({ running: info !== undefined, ready: false, dataDirectory, services });
        else if (info === undefined)
          output.note(
            `no local stack runs in ${dataDirectory}; start one with ` +
              `\`internevo up\`, or name another directory with --data-directory`,
          );
        else
          output.note(
            `the local stack in ${dataDirectory} is starting, as ` +
              `process ${info.pid}; its log is ${dataDirectory}/logs/up.log`,
          );
        return;
      }
      const isReady = info.readyAt !== null && services.every(({ healthy }) => healthy);
      showStack({ apiUrl: info.apiUrl, token: info.apiToken, dataDirectory, pid: info.pid }, output, {
        running: true,
        ready: isReady,
        startedAt: info.startedAt,
        services,
      });
      if (!output.json) {
        const { colors } = output;
        output.data(`data     ${dataDirectory}`);
        output.data(`started  ${formatMoment(info.startedAt)}, process ${info.pid}`);
        output.data("");
        output.data(
          table<ServiceStatus>(
            [
              { title: "SERVICE", value: ({ name }) => name },
              {
                title: "STATE",
                value: ({ state, healthy }) => (healthy ? colors.green(state) : colors.red(state)),
              },
              { title: "PROCESS", align: "right", value: ({ pid }) => (pid === null ? "–" : String(pid)) },
              { title: "LOG", value: ({ name }) => `logs/${name}.log` },
            ],
            services,
            colors,
          ),
        );
      }
      if (!isReady) context.setExitCode(EXIT.unavailable);
    });
}
