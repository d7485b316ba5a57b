#!/bin/sh
# A MiniCluster of four and a queue on this machine: no Kubernetes, no root, no Flux needed.
# Run by `make demo`; the argument is the program to show.
set -u
program=${1:-flux-operator}
here=$(dirname "$0")

show() {
    printf '\n\033[1m$ %s\033[0m\n' "$(echo "$*" | sed "s|$program|flux-operator|; s|$here|examples|")"
    "$@"
}

echo "1. A manifest runs to its end, and its output is the command's."
show "$program" local run -f "$here/local.yaml" || exit 1

echo
echo "2. A cluster that stays up takes jobs, as any Flux does."
show "$program" local up -f "$here/interactive.yaml" || exit 1
trap '"$program" local down interactive >/dev/null 2>&1' EXIT
show "$program" local exec interactive -- flux resource list
show "$program" local exec interactive -- flux run -N4 -l hostname
show "$program" local exec interactive -- flux jobs -a
show "$program" local down interactive
trap - EXIT

echo
echo "3. A command that fails says so with its own exit code."
show "$program" local run -f "$here/fails.yaml"
code=$?
echo "exit code $code"
[ "$code" -eq 7 ] || exit 1

echo
echo "4. Three jobs for room of two: the third waits, and says why."
show "$program" local run -f "$here/queue/three-jobs.yaml"
