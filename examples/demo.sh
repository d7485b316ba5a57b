#!/bin/sh
# A MiniCluster of four, a queue and two connected clusters on this machine: no Kubernetes, root or
# Flux needed.
# Run by `make demo`; the argument is the program to show.
set -u
program=${1:-flux-operator}
here=$(dirname "$0")

show() {
    printf '\n\033[1m$ %s\033[0m\n' "$(echo "$*" | sed "s|$program|flux-operator|; s|$here|examples|")"
    "$@"
}

echo "1. A manifest runs to completion, and prints the output of its command."
show "$program" local run -f "$here/local.yaml" || exit 1

echo
echo "2. A cluster that stays up accepts jobs, like any Flux instance."
show "$program" local up -f "$here/interactive.yaml" || exit 1
trap '"$program" local down interactive >/dev/null 2>&1' EXIT
show "$program" local exec interactive -- flux resource list
show "$program" local exec interactive -- flux run -N4 -l hostname
show "$program" local exec interactive -- flux jobs -a
show "$program" local down interactive
trap - EXIT

echo
echo "3. The exit code of a command that fails is passed on."
show "$program" local run -f "$here/fails.yaml"
code=$?
echo "exit code $code"
[ "$code" -eq 7 ] || exit 1

echo
echo "4. Three jobs share a quota of two nodes: the third waits, and the reason is shown."
show "$program" local run -f "$here/queue/three-jobs.yaml" || exit 1

echo
echo "5. Two connected clusters are one Flux instance: a job uses the nodes of both."
show "$program" local run -f "$here/connected/local.yaml"
