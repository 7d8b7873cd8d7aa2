# A Slurm cluster inside namespaces of its own: process 1 of it. When it ends, for whatever reason, the kernel ends every daemon, step and rank.
# usage: nodes.sh DIRECTORY NODE...      DIRECTORY holds slurm.conf. Writes `ready` when the daemons have been started.
# Commands come by standard input, and are answered by `done`: controller-kill, controller-start, kill NODE, start NODE.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
directory=$1
shift
export SLURM_CONF=$directory/slurm.conf LC_ALL=C.UTF-8

munged --key-file="$directory/munge.key" --socket="$directory/munge.socket" --pid-file="$directory/munged.pid" --log-file="$directory/log/munged.log" --seed-file="$directory/munged.seed" --num-threads=2

controller_start() { # foreground daemon in the background: it stays a child of this process
  unshare --uts bash -c 'hostname front; exec slurmctld -D "$@"' slurmctld "$@" > /dev/null 2>> "$directory/log/slurmctld.err" < /dev/null &
  controller=$!
}
declare -A daemons
node_start() {
  # Shared memory of its own, as a machine has; the name tells Open MPI that ranks of two nodes share none.
  unshare --uts --mount --propagation private bash -c 'hostname "$0"; mount -t tmpfs -o mode=1777 tmpfs /dev/shm; exec slurmd -D -N "$0"' "$1" > /dev/null 2>> "$directory/log/slurmd.$1.err" < /dev/null &
  daemons[$1]=$!
}
node_kill() { # as if the power were cut: whatever has the node's name, again until nothing is left
  local space found=1 process
  space=$(readlink "/proc/${daemons[$1]}/ns/uts")
  while [ "$found" = 1 ]; do
    found=0
    for process in /proc/[0-9]*; do
      if [ "$(readlink "$process/ns/uts" 2> /dev/null)" = "$space" ] && ! grep -qs '^State:.Z' "$process/status"; then
        kill -KILL "${process#/proc/}" 2> /dev/null || true
        found=1
      fi
    done
  done
  wait "${daemons[$1]}" 2> /dev/null || true
}

controller_start -c
for node in "$@"; do node_start "$node"; done
echo ready
while read -r command node; do
  case $command in
    controller-kill) kill -KILL "$controller"; wait "$controller" 2> /dev/null || true ;;
    controller-start) controller_start ;;
    kill) node_kill "$node" ;;
    start) node_start "$node" ;;
    *) echo "unknown command $command" >&2; exit 2 ;;
  esac
  echo done
done
