#!/usr/bin/env bash
# all.sh PYTHON VENV: every test of pytest and vitest. Those with real browsers and real meshes mostly wait, and some of
# them look at how long something takes; the others use what time the processors have left. All are waited for; it fails
# when any does.
set -uo pipefail
python=$1
venv=$2
out=$(mktemp)
others=

stop() {
    test -z "$others" || kill -INT -- "-$others" 2>/dev/null
    test -z "$others" || wait "$others"
    rm -f "$out"
}
trap stop EXIT
trap 'exit 130' INT TERM

beside() {
    local failed=0
    "$python" -m pytest tests --ignore=tests/browsers --ignore=tests/e2e || failed=1
    (cd web_peer && ./with_node.sh "$venv" npm run --silent test) || { echo "vitest failed, see above" && failed=1; }
    return "$failed"
}

set -m # a process group of its own: a shell's background jobs else ignore Ctrl-C, and `stop` passes it on
(renice -n 19 "$BASHPID" >/dev/null 2>&1; beside) >"$out" 2>&1 </dev/null &
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
