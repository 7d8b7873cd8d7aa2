# Builds a testbed inside namespaces of its own and holds it: process 1 of the testbed. When it ends, for whatever reason, the
# kernel ends every process of the testbed and takes its networks away.
# usage: nodes.sh NAME NODES RATE_BITS BURST_BYTES MTU_BYTES SUBNET_PREFIX RELAY HALF_LATENCY_NANOSECONDS WINDOW_BYTES QUEUE_BYTES
# RELAY is empty for links without latency. Writes `node INDEX PID` a node, then `ready`.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
name=$1 nodes=$2 rate=$3 burst=$4 mtu=$5 subnet=$6 relay=$7 latency=$8 window=$9 queue=${10}

tune() { # of a link's end: rate of what leaves here
  ip link set dev "$1" mtu "$mtu" gso_max_size "$gso" up
  tc qdisc add dev "$1" root tbf rate "${rate}bit" burst "$burst" limit "$queue"
}
gso=$burst; [ "$gso" -gt 65536 ] && gso=65536

hostname "$name-front"
ip link set dev lo up
ip link add dev switch type bridge
ip link set dev switch mtu "$mtu" up
ip address add "$subnet.255.254/16" dev switch

for ((i = 0; i < nodes; i += 1)); do
  # shellcheck disable=SC2016
  exec {ready}< <(exec unshare --net --uts --ipc --mount --propagation private bash -euc '
    hostname "$0"
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm
    ip link set dev lo up
    # Queues that hold every connection'"'"'s whole window lose nothing, as the fabric of a training cluster: then the plainest
    # congestion control keeps a link full, and nothing has to slow down after the pause of a computation.
    cd /proc/sys/net/ipv4
    echo reno > tcp_congestion_control
    echo 0 > tcp_slow_start_after_idle
    echo "4096 65536 $1" > tcp_rmem
    echo "4096 65536 $1" > tcp_wmem
    echo $$
    exec sleep infinity' "$name-$i" "$window")
  read -r pid <&"$ready" || { echo "node $i cannot be made" >&2; exit 1; }
  if [ -z "$relay" ]; then
    ip link add dev "link$i" type veth peer name node0 netns "$pid"
  else
    # The relay holds both ends; one moves into the node.
    exec {up}< <(exec "$relay" "link$i" "node$i" "$latency")
    read -r _ <&"$up" || { echo "the relay of node $i does not start" >&2; exit 1; }
    ip link set dev "node$i" netns "$pid" name node0
  fi
  ip link set dev "link$i" master switch
  tune "link$i"
  nsenter --target "$pid" --net bash -euc "$(declare -f tune); rate=$rate burst=$burst mtu=$mtu gso=$gso queue=$queue; tune node0; ip address add $subnet.$((i / 250)).$((i % 250 + 1))/16 dev node0"
  echo "node $i $pid"
done
echo ready
exec > /dev/null
# Bash as process 1 also collects the processes that end here without a parent.
while :; do sleep infinity & wait; done
