/** One word of a shell, whatever is in it. */
export const quote = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

/**
 * Keeps in `told` by which signal the script was told to end, and passes the wish for an orderly end on to the
 * ranks.
 */
export const TELL = `child=
signalled=0
tell() {
  told=$1
  signalled=1
  [ -n "$child" ] && kill -USR1 "$child" 2> /dev/null
}`;

/**
 * The end of a script that starts ranks by a command, with the files of their standard output and error. `end`,
 * with the exit code, is the script's own.
 */
export const runRanks = (
  command: string,
  files: { readonly events: string; readonly errors: string },
): string =>
  `${command} > ${files.events} 2> ${files.errors} < /dev/null &
child=$!
[ -n "$told" ] && kill -USR1 "$child"
while :; do
  signalled=0
  wait "$child"
  code=$?
  # A signal to this script ends the wait, not the ranks.
  [ "$signalled" = 0 ] && break
done
end "$code"
exit "$code"
`;
