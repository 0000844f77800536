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
    # By itself, as long as it leads no group yet.
    test -z "$others" || kill -INT -- "-$others" 2>/dev/null || kill "$others" 2>/dev/null
    test -z "$others" || wait "$others"
    rm -f "$out"
}
trap stop EXIT
trap 'exit 130' INT TERM

"$python" tests/beside.py "$venv" >"$out" 2>&1 </dev/null &
others=$! # and the number of its process group
"$python" -m pytest tests/browsers tests/e2e
slow=$?
wait "$others"
quick=$?
others=
printf '\n== beside them\n'
cat "$out"
((slow == 0 && quick == 0))
