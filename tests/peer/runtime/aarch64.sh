#!/usr/bin/env bash
# aarch64.sh [FOLDER [PYTEST ARGUMENT...]]: the tests marked any_processor on aarch64 under qemu, once per kind of core.
#
# Makes FOLDER (default: a temporary one, removed at the end) with Debian's Python for arm64, unpacked and not installed,
# and the wheels for aarch64, 560 MB in all; what a FOLDER given here has already is used again. Needs no root, but apt-get,
# Debian's archive key, qemu-aarch64 (package qemu-user) and a Python with pip: PYTHON, or else .venv/bin/python. CORES are
# the kinds of core, out of those of `describe`.
set -Eeuo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../../.." && pwd)
python=${PYTHON:-$repository/.venv/bin/python}
suite=bookworm
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI) $(SUITE)' 2>/dev/null | awk '$2 ~ /^(old)*stable$/ { print $1; exit }' || true)}
version=3.11 # the Python of that suite
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
read -ra cores <<<"${CORES:-cortex-a72 neoverse-n1 max}"

fail() {
    echo "$*" >&2
    exit 1
}
command -v qemu-aarch64 >/dev/null || fail "qemu-aarch64 is not installed: install the package qemu-user"
command -v apt-get >/dev/null || fail "apt-get is not here: Debian's Python for arm64 comes by it"
[[ -n $mirror ]] || fail "this machine has no source of Debian packages: name a mirror by DEBIAN_MIRROR=http://HOST/debian"
[[ -r $keyring ]] || fail "$keyring is not there: install the package debian-archive-keyring"
[[ -x $python ]] || fail "$python is not there: run make setup, or name a Python with pip by PYTHON=..."

if [[ -n ${1:-} ]]; then
    mkdir -p "$1"
    folder=$(cd "$1" && pwd)
else
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
fi
root=$folder/root
wheels=$folder/wheels
shift $(($# > 0))
if (($# == 0)); then
    set -- tests/peer/runtime
fi

# unpack_python: Debian's Python and all that it depends on, from an apt that knows of nothing installed.
unpack_python() {
    local apt=$folder/apt options package
    mkdir -p "$apt"/{lists/partial,archives/partial,empty} "$root.part"
    : >"$apt/status"
    echo "deb [arch=arm64 signed-by=$keyring] $mirror $suite main" >"$apt/sources.list"
    options=(
        -qq -o "APT::Architecture=arm64" -o "APT::Architectures=arm64" -o "APT::Install-Recommends=false"
        -o "Dir::Etc::SourceList=$apt/sources.list" -o "Dir::Etc::SourceParts=$apt/empty"
        -o "Dir::State::Lists=$apt/lists" -o "Dir::State::Status=$apt/status"
        -o "Dir::Cache=$apt" -o "Dir::Cache::Archives=$apt/archives" -o "APT::Sandbox::User=" -o "Debug::NoLocking=true"
    )
    apt-get "${options[@]}" update
    apt-get "${options[@]}" --yes --download-only install "python$version" libstdc++6
    for package in "$apt"/archives/*.deb; do
        dpkg-deb --extract "$package" "$root.part"
    done
    mv "$root.part" "$root"
    rm -rf "$apt"
}

# unpack_wheels: what the project and these tests need. pip reads a dependency's conditions as if it were for this machine's
# own Python.
unpack_wheels() {
    local needed
    mapfile -t needed < <("$python" - "$repository/pyproject.toml" <<'PROGRAM'
import re, sys, tomllib
from pathlib import Path

project = tomllib.loads(Path(sys.argv[1]).read_text())["project"]
tests = [line for line in project["optional-dependencies"]["dev"] if re.match("hypothesis|pytest", line)]
print(*project["dependencies"], *tests, sep="\n")
PROGRAM
    )
    rm -rf "$wheels.part"
    "$python" -m pip install -qq --disable-pip-version-check --no-warn-conflicts --target "$wheels.part" --only-binary=:all: \
        --implementation cp --python-version "$version" --abi "cp${version/./}" --abi abi3 --abi none \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_26_aarch64 \
        --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 "${needed[@]}"
    mv "$wheels.part" "$wheels"
}

# describe CORE: the /proc/cpuinfo of a machine of such cores, which the emulated program finds in place of this machine's.
# onnxruntime ends with a segmentation fault where it reads one of another family.
describe() {
    local implementer=0x41 variant part revision number
    case $1 in
        cortex-a72) variant=0x0 part=0xd08 revision=3 ;;  # no dot products: Raspberry Pi 4
        neoverse-n1) variant=0x4 part=0xd0c revision=1 ;; # dot products: Raspberry Pi 5, Graviton 2
        max) variant=0x1 part=0xd40 revision=1 ;;         # products of int8 matrices, too: Graviton 3, Apple M2
        *) fail "core $1 is not known: cortex-a72, neoverse-n1 and max are" ;;
    esac
    for ((number = 0; number < $(getconf _NPROCESSORS_CONF); number++)); do
        printf 'processor\t: %d\nCPU implementer\t: %s\nCPU architecture: 8\nCPU variant\t: %s\nCPU part\t: %s\nCPU revision\t: %d\n\n' \
            "$number" "$implementer" "$variant" "$part" "$revision"
    done
}

if [[ ! -d $root ]]; then
    echo "unpacking Python $version for arm64 from $mirror"
    unpack_python
fi
if [[ ! -d $wheels ]]; then
    echo "unpacking the wheels for aarch64"
    unpack_wheels
fi

failed=()
for core in "${cores[@]}"; do
    printf '\n== %s\n' "$core"
    mkdir -p "$root/proc"
    described=$(describe "$core")
    printf '%s\n\n' "$described" >"$root/proc/cpuinfo"
    (
        cd "$repository"
        PYTHONPATH=$wheels exec qemu-aarch64 -L "$root" -cpu "$core" "$root/usr/bin/python$version" -m pytest \
            -m any_processor -p no:cacheprovider --tb=short --no-header "$@"
    ) || failed+=("$core")
done
if ((${#failed[@]} > 0)); then
    fail "failed on: ${failed[*]}"
fi
