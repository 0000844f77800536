#!/usr/bin/env bash
# Runs every test of pytest, in two processes: those with real browsers and real meshes mostly wait, so the others use
# that time. Both are waited for; it fails when either does.
set -uo pipefail
python=$1
out=$(mktemp)
others=

stop() {
    test -z "$others" || kill -INT -- "-$others" 2>/dev/null
    test -z "$others" || wait "$others"
    rm -f "$out"
}
trap stop EXIT
trap 'exit 130' INT TERM

set -m # a process group of its own: a shell's background jobs else ignore Ctrl-C, and `stop` passes it on
"$python" -m pytest tests --ignore=tests/browsers --ignore=tests/e2e >"$out" 2>&1 </dev/null &
others=$!
set +m
"$python" -m pytest tests/browsers tests/e2e
slow=$?
wait "$others"
quick=$?
others=
printf '\n== beside them\n'
cat "$out"
((slow == 0 && quick == 0))
