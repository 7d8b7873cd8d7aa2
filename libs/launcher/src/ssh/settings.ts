import { Type, type Static } from "typebox";

const strict = { additionalProperties: false } as const;

/** Open MPI splits the remote shell's command at white space and colons, and lists of hosts at commas. */
const Word = Type.String({ minLength: 1, maxLength: 4096, pattern: "^[^\\s:,]+$" });

/**
 * Hosts that ranks are started on by a remote shell. Whoever runs an installation describes them once: a job
 * only names the cluster, since a remote shell in a job would let its author run any command as the services.
 */
export const HostClusterSchema = Type.Object(
  {
    hosts: Type.Array(
      Type.Object(
        {
          name: Type.String({ pattern: "^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252}[A-Za-z0-9_])?$" }),
          slots: Type.Integer({ minimum: 1, maximum: 1_000_000, description: "ranks that the host takes" }),
          cores: Type.Optional(
            Type.Integer({
              minimum: 1,
              maximum: 1_000_000,
              description:
                "cores that its ranks have for themselves: where they suffice, " +
                "a rank keeps its core while it waits; default: not known",
            }),
          ),
        },
        strict,
      ),
      { minItems: 1, maxItems: 100_000, description: "nodes, in the order in which ranks fill them" },
    ),
    remoteShell: Type.Optional(
      Type.Array(Word, {
        minItems: 1,
        maxItems: 100,
        description: "command that runs `HOST COMMAND` there, as ssh does; default: ssh -o BatchMode=yes",
      }),
    ),
    network: Type.Optional(
      Type.Array(Type.String({ pattern: "^[A-Za-z0-9_.:/-]+$" }), {
        minItems: 1,
        maxItems: 16,
        description:
          "subnets (10.1.0.0/16) or interfaces over which hosts talk; default: any that they share",
      }),
    ),
    enter: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: 4096 }), {
        minItems: 1,
        maxItems: 100,
        description:
          "command that becomes its arguments where the hosts can be reached " +
          "(nsenter, ip netns exec); default: they can be reached from here",
      }),
    ),
  },
  strict,
);
export type HostCluster = Static<typeof HostClusterSchema>;
