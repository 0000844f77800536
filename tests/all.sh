#!/usr/bin/env bash
# all.sh PYTHON VENV: every test of pytest and vitest, in three lanes at once. Those in real browsers come first, since some
# look at how long something takes; those with real meshes mostly wait, and go beside them; those that only compute use what
# time the processors have left. All are waited for; it fails when any does.
set -uo pipefail
python=$1
venv=$2
folder=$(mktemp -d)
lanes=()

stop() {
    for lane in "${lanes[@]}"; do
        # By itself, as long as it leads no group yet.
        kill -INT -- "-$lane" 2>/dev/null || kill "$lane" 2>/dev/null
        wait "$lane"
    done
    rm -rf "$folder"
}
trap stop EXIT
trap 'exit 130' INT TERM

for lane in meshes computing; do
    "$python" tests/beside.py "$lane" "$venv" >"$folder/$lane" 2>&1 </dev/null &
    lanes+=($!) # and the number of its process group
done
"$python" -m pytest tests/browsers
failed=$?
for lane in meshes computing; do
    wait "${lanes[0]}" || failed=1
    lanes=("${lanes[@]:1}")
    printf '\n== %s, beside them\n' "$lane"
    cat "$folder/$lane"
done
((failed == 0))
