import { YIELDS_VARIABLE } from "../environment.ts";
import { positive } from "../scheduled/positive.ts";
import { quote, runRanks, TELL } from "../scheduled/shell.ts";
import type { SlurmSettings } from "./settings.ts";

export interface ScriptOptions {
  readonly settings: SlurmSettings;
  readonly program: string;
  readonly configPath: string;
  readonly nodes: number;
  readonly ranksPerNode: number;
  readonly threadsPerRank: number;
  /** Shared by all nodes; what the job writes goes there, see {@link JOB_FILES}. */
  readonly directory: string;
}

/** Files of one submission, in its directory. */
export const JOB_FILES = {
  script: "job.sh",
  log: "slurm.log",
  events: "events.jsonl",
  errors: "stderr.log",
  claim: "claim",
  hosts: "hosts",
  end: "end.json",
} as const;

/** What starts the ranks inside the allocation: rank r sits on line r of `hosts`, as the mesh wants it. */
function launcher({ settings, nodes, ranksPerNode, threadsPerRank }: ScriptOptions): string {
  const ranks = nodes * ranksPerNode;
  const more = (settings.launchOptions ?? []).map(quote);
  if ((settings.start ?? "srun") === "mpirun") {
    const command = (settings.mpirun ?? ["mpirun"]).map(quote);
    // Slots by node in the order of their ranks, filled one after the other.
    return [
      ...command,
      "-np",
      ranks,
      "--host",
      `"$(host_list)"`,
      "--map-by",
      "slot",
      "--bind-to",
      "none",
      "--oversubscribe",
      ...more,
    ].join(" ");
  }
  // Not --kill-on-bad-exit: ranks that end in order, one after the other, with another code than 0 would be
  // killed over it.
  const options = [
    "--nodes",
    nodes,
    "--ntasks",
    ranks,
    "--cpus-per-task",
    threadsPerRank,
    "--distribution",
    "arbitrary",
    "--mpi",
    settings.mpi ?? "pmix",
    "--kill-on-bad-exit=0",
    "--wait=30",
    "--unbuffered",
    "--export=ALL",
  ];
  return ["SLURM_HOSTFILE=hosts", "srun", ...options, ...more].join(" ");
}

/**
 * The batch script: places ranks, starts them, passes the wish for an orderly end on to them, and leaves word
 * of how they ended. It needs a shell and Slurm's own commands on the first node, nothing of ours.
 */
export function batchScript(options: ScriptOptions): string {
  const { settings, nodes, ranksPerNode, directory } = options;
  positive("nodes", nodes);
  positive("ranksPerNode", ranksPerNode);
  return `#!/bin/bash
cd ${quote(directory)} || exit 1

# After a crash at the wrong moment this job may have been submitted twice: whichever starts first is the one.
if ! (set -o noclobber; echo "$SLURM_JOB_ID" > ${JOB_FILES.claim}) 2> /dev/null && [ "$(cat ${JOB_FILES.claim})" != "$SLURM_JOB_ID" ]; then
  echo "job $(cat ${JOB_FILES.claim}) does this already"
  exit 0
fi

told=
end() { # exit code, or null where the ranks were not started
  printf '{"jobId":%s,"exitCode":%s,"told":"%s"}\\n' "$SLURM_JOB_ID" "$1" "$told" > ${JOB_FILES.end}.tmp
  mv -f ${JOB_FILES.end}.tmp ${JOB_FILES.end}
}
if [ "\${SLURM_RESTART_COUNT:-0}" != 0 ]; then
  told=REQUEUED
  end null
  exit 0
fi

${TELL}
# Slurm sends USR1 when the time limit is near, and for whoever asks for an orderly end; TERM when it takes the nodes away.
trap 'tell USR1' USR1
trap 'tell TERM' TERM

${modules(settings)}${Object.entries(settings.environment ?? {})
    .map(([name, value]) => `export ${name}=${quote(value)}\n`)
    .join("")}export ${YIELDS_VARIABLE}="\${${YIELDS_VARIABLE}:-1}"
# Slurm's other way (a tree) lets ranks through a fence without data before all have come, and MPI_Init relies on it: the first message to a rank
# that is not ready ends it.
export SLURM_PMIX_FENCE="\${SLURM_PMIX_FENCE:-ring}"
# It is the allocation's, and srun would hold it against the hosts that ranks are placed by.
unset SLURM_NTASKS_PER_NODE

# Rank r sits on line r: consecutive ranks fill a node, as the mesh of the plan has it.
scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n ${nodes} | while read -r node; do
  for ((slot = 0; slot < ${ranksPerNode}; slot += 1)); do echo "$node"; done
done > ${JOB_FILES.hosts}
if [ "$(wc -l < ${JOB_FILES.hosts})" != ${nodes * ranksPerNode} ]; then
  echo "the allocation $SLURM_JOB_NODELIST has fewer than ${nodes} nodes" >&2
  told=NODES
  end null
  exit 1
fi
host_list() { uniq -c ${JOB_FILES.hosts} | while read -r count node; do printf '%s%s:%s' "$comma" "$node" "$count"; comma=,; done; }

${runRanks(`${launcher(options)} ${[...(settings.container ?? []), options.program, "--config", options.configPath].map(quote).join(" ")}`, JOB_FILES)}`;
}

function modules({ modules: names = [] }: SlurmSettings): string {
  if (names.length === 0) return "";
  return `if ! declare -F module > /dev/null; then
  for file in /etc/profile.d/modules.sh /etc/profile.d/lmod.sh /usr/share/modules/init/bash /usr/share/lmod/lmod/init/bash "\${LMOD_PKG:-/nowhere}/init/bash"; do
    [ -r "$file" ] && . "$file" && break
  done
fi
${names
  .map(
    (name) => `if ! module load ${quote(name)}; then
  echo ${quote(`environment module ${name} cannot be loaded`)} >> ${JOB_FILES.errors}
  told=MODULE
  end null
  exit 1
fi
`,
  )
  .join("")}`;
}
