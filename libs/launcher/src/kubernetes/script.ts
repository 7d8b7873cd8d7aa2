import type { Size } from "../scheduled/begin.ts";
import { YIELDS_VARIABLE } from "../environment.ts";
import { positive } from "../scheduled/positive.ts";
import { quote, runRanks, TELL } from "../scheduled/shell.ts";

export interface PodScriptOptions extends Size {
  /** As pods see it. */
  readonly program: string;
  readonly configPath: string;
  /** Shared by all pods; what the job writes goes there, see {@link POD_FILES}. */
  readonly directory: string;
  /** How pods call themselves, in the order of their indices. */
  readonly hostnames: readonly string[];
  readonly mpirunOptions: readonly string[];
}

/** Files of one launch, in its directory. */
export const POD_FILES = {
  script: "pod.sh",
  agent: "agent.sh",
  config: "config.json",
  events: "events.jsonl",
  errors: "stderr.log",
  claim: "claim",
  end: "end.json",
} as const;

/** Between two looks of a pod at the shared folder. */
const LOOK_SECONDS = 0.3;

/** What mpirun takes for a remote shell: leaves the command of a host's daemon for the pod of that host. */
export const agentScript = (directory: string): string => `#!/bin/bash
# Called by mpirun as a remote shell: HOST COMMAND. The pod of that host finds the command here, and runs it.
cd ${quote(directory)} || exit 1
host=$1
shift
printf '%s\\n' "$*" > "daemon.$host.tmp" && mv -f "daemon.$host.tmp" "daemon.$host"
`;

/** The function that ends: once for a launch, whoever comes first. */
const END = `end() { # exit code, or null where the ranks were not started
  printf '{"pod":"%s","exitCode":%s,"told":"%s"}\\n' "$POD_UID" "$1" "$told" > ${POD_FILES.end}.tmp
  mv -f ${POD_FILES.end}.tmp ${POD_FILES.end}
}`;

function mpirun({ nodes, ranksPerNode, hostnames, mpirunOptions, program, configPath }: PodScriptOptions) {
  const others = hostnames.slice(1).map((name) => `${name}:${ranksPerNode}`);
  return [
    ...["mpirun", "-np", nodes * ranksPerNode],
    // The first pod by the name that it gives itself, which on the node's network is the node's.
    ...["--host", `"$(hostname):${ranksPerNode}${others.map((each) => `,${each}`).join("")}"`],
    // Consecutive ranks fill a node, as the mesh of the plan has it.
    ...["--map-by", "slot", "--bind-to", "none", "--oversubscribe"],
    ...["--mca", "plm", "rsh", "--mca", "plm_rsh_agent", quote(`bash ${POD_FILES.agent}`)],
    ...["--mca", "plm_rsh_no_tree_spawn", 1, "--leave-session-attached"],
    ...mpirunOptions.map(quote),
    ...[program, "--config", configPath].map(quote),
  ].join(" ");
}

/**
 * What every pod runs. The first starts mpirun, passes the wish for an orderly end on to it, and leaves word of how
 * it ended. Each other runs the daemon of its host, for as long as that lives.
 */
export function podScript(options: PodScriptOptions): string {
  positive("nodes", options.nodes);
  positive("ranksPerNode", options.ranksPerNode);
  const { directory } = options;
  return `#!/bin/bash
cd ${quote(directory)} || exit 1
export ${YIELDS_VARIABLE}="\${${YIELDS_VARIABLE}:-1}"
export OMPI_MCA_orte_base_help_aggregate=0
# Large messages over TCP as sends: see hosts over ssh.
export OMPI_MCA_btl_tcp_flags="\${OMPI_MCA_btl_tcp_flags:-send}"

if [ "\${JOB_COMPLETION_INDEX:?}" != 0 ]; then
  # The daemon ends its ranks when mpirun is gone. Whoever takes the pod away tells the first pod too.
  trap : TERM
  names=(${options.hostnames.map(quote).join(" ")})
  order=daemon.\${names[$JOB_COMPLETION_INDEX]}
  until command=$(cat "$order" 2> /dev/null) && [ -n "$command" ]; do
    [ -e ${POD_FILES.end} ] && exit 0
    sleep ${LOOK_SECONDS}
  done
  /bin/sh -c "exec $command" < /dev/null &
  daemon=$!
  while kill -0 "$daemon" 2> /dev/null; do wait "$daemon"; done
  exit 0
fi

told=
${END}
# Pods that are started again, after Kueue has taken their place away for instance, do nothing: the launch was the first's.
if ! (set -o noclobber; echo "$POD_UID" > ${POD_FILES.claim}) 2> /dev/null && [ "$(cat ${POD_FILES.claim})" != "$POD_UID" ]; then
  echo "pod $(cat ${POD_FILES.claim}) has done this already"
  told=AGAIN
  [ -e ${POD_FILES.end} ] || end null
  exit 0
fi

${TELL}
# Kubernetes sends TERM when it takes the pod away, for whoever asks for an orderly end too.
trap 'tell TERM' TERM

${runRanks(mpirun(options), POD_FILES)}`;
}
