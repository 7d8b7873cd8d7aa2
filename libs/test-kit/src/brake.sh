# Runs a command and lets it say no more than some lines until a file is there; then some more, until another file is. Before a file, what it says
# passes at one line each PACE seconds, or not at all (hold). It fills a pipe, and then the command waits: how fast a machine is does not decide
# how far it gets.
# usage: brake.sh PACE|hold [LINES FILE]... -- COMMAND
pace=$1
shift
brakes=()
while [ "$1" != -- ]; do
  brakes+=("$1" "$2")
  shift 2
done
shift
command=$$
pass() {
  trap '' USR1 TERM # meant for the command, which may have a last word
  set -- "${brakes[@]}"
  while [ $# -gt 0 ]; do
    for ((said = 0; said < $1; said += 1)); do
      IFS= read -r line || return # the command has ended
      printf '%s\n' "$line"
    done
    until [ -e "$2" ] || ! kill -0 "$command" 2> /dev/null; do
      if [ "$pace" = hold ]; then
        sleep 0.05
      else
        IFS= read -r line || return
        printf '%s\n' "$line"
        sleep "$pace"
      fi
    done
    shift 2
  done
  exec cat
}
exec > >(pass)
exec "$@"
