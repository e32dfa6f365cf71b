"""The bash program that runs commands inside a sandbox.

Starting a container runtime for every command costs 60 ms or more; a shell that is already
inside costs two. It needs nothing in the image but bash (and `setsid`, where there is one), so it
fits every official image. It reads orders from one FIFO, answers on another, and gives each
command a session and an output FIFO of its own. `pipeline.sandbox.resident` is its other half.

If the owner dies, its end of the `life` FIFO closes and the watcher here kills all that runs.
"""

RUNNER = r"""
control=$1 workdir=$2 scope=$3 locale=$4 mark=$5
exec 3<"$control/commands" 4>"$control/replies" || exit 1
[ -r "$control/environment" ] && . "$control/environment"
[ -n "$locale" ] && export LC_ALL="$locale"

# Activate once what every command would activate, and keep it: conda alone takes 0.2 s.
if [ -n "$SANDBOX_PROFILE" ]; then
  [ -r "$SANDBOX_PROFILE" ] && . "$SANDBOX_PROFILE" >/dev/null 2>&1
  if [ "$CONDA_DEFAULT_ENV" != testbed ] && [ -r /opt/miniconda3/bin/activate ]; then
    . /opt/miniconda3/bin/activate >/dev/null 2>&1
    conda activate testbed >/dev/null 2>&1
  fi
  {
    # A command may add to the profile; later commands then have to see it.
    printf '[ %q -nt %q ] && . %q\n' "$SANDBOX_PROFILE" "$control/profile" "$SANDBOX_PROFILE"
    declare -f
  } >"$control/profile"
  export BASH_ENV=$control/profile
fi
if [ -n "$mark" ]; then
  if [ -n "$BASH_ENV" ] && [ "$BASH_ENV" != "$control/profile" ]; then
    printf '. %q\n' "$BASH_ENV" >"$control/profile"
  fi
  # Printed last of what a shell does before its command: what came before is the image's noise.
  printf '[ -n "$SANDBOX_MARK" ] && { printf %%s "$SANDBOX_MARK"; unset SANDBOX_MARK; }\n' \
    >>"$control/profile"
  export BASH_ENV=$control/profile
fi
unset SANDBOX_PROFILE OLDPWD
if command -v git >/dev/null && [ -d "$workdir/.git" ] &&
   ! git -C "$workdir" rev-parse --git-dir >/dev/null 2>&1; then
  git config --global --add safe.directory '*' # the repository belongs to another user
fi
session=$(command -v setsid)

end_tree() {
  local child
  for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do
    [ "$child" = "$watcher" ] && continue
    end_tree "$child"
    kill -KILL "$child" 2>/dev/null
  done
}
end_all() {
  # In a namespace of our own -1 means everyone but us; elsewhere it would mean the user's all.
  watcher=$BASHPID
  for _ in 1 2 3 4 5; do
    if [ "$scope" = namespace ]; then kill -KILL -1; else end_tree $$; fi
  done 2>/dev/null
}
(
  exec 3<&- 4>&-
  read -r _ <"$control/life"
  end_all
  kill -KILL $$ 2>/dev/null
) </dev/null >/dev/null 2>&1 &

printf 'ready\n' >&4
while read -r number how directory <&3; do
  IFS= read -r -d '' order <"$control/order.$number"
  # One argument can hold 128 kB at most.
  long=
  if [ ${#order} -gt 30000 ]; then long=yes order='eval "shift; $(<"$1")"'; fi
  (
    exec 3<&- 4>&-
    cd -- "$directory" 2>/dev/null || {
      printf 'cannot enter the working directory %s: it is gone or no directory\n' "$directory"
      exit 126
    }
    export SANDBOX_COMMAND=$number
    [ -n "$mark" ] && export SANDBOX_MARK=$mark
    unset OLDPWD
    [ "$how" = plain ] && unset BASH_ENV SANDBOX_MARK
    exec $session bash -c "$order" bash ${long:+"$control/order.$number"}
  ) </dev/null >"$control/out.$number" 2>&1 &
  wait $!
  printf '%s %s\n' "$number" "$?" >&4
done
end_all
"""
"""Arguments: control folder, working directory, `namespace` or `tree` (how far to kill), a locale
to set, and a mark to print before each command's output; the last two may be empty."""
