#!/bin/sh
# Installs what tests drive, where apt-get can and this is root: Chromium and Firefox, qemu for other instruction sets, and
# for peers behind a relay coturn and ip. Otherwise it only says what is missing: the tests of that browser or of other
# instruction sets then fail, unless SHOAL_TEST_BROWSERS=none or SHOAL_TEST_QEMU=none, and the test of the relay is skipped
# with a warning.
set -u

# has NAME...: one of these programs is on the path.
has() {
    for name in "$@"; do
        command -v "$name" >/dev/null 2>&1 && return 0
    done
    return 1
}

missing=
if [ "${SHOAL_TEST_BROWSERS:-}" != none ]; then
    has chromium chromium-browser google-chrome || missing="$missing chromium"
    has firefox-esr firefox || missing="$missing firefox-esr"
fi
if [ "${SHOAL_TEST_QEMU:-}" != none ] && [ "$(uname -sm)" = "Linux x86_64" ]; then # it emulates this machine's own Python
    has qemu-x86_64 || missing="$missing qemu-user"
fi
if [ "$(id -u)" = 0 ]; then # only root can make the networks of that test
    has turnserver || missing="$missing coturn"
    has ip || missing="$missing iproute2"
fi
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! has apt-get; then
    echo "what tests need is not installed:$missing; install it, or set SHOAL_TEST_BROWSERS=none for browsers," \
        "SHOAL_TEST_QEMU=none for qemu-user" >&2
    exit 0
fi
echo "installing$missing for the tests"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq || echo "apt-get update failed; trying with the lists that are here" >&2
for package in $missing; do
    case $package in
        firefox-esr) apt-get install -y -qq firefox-esr >/dev/null || apt-get install -y -qq firefox >/dev/null ;;
        # Not what it recommends: that has the kernel start foreign programs by it.
        qemu-user) apt-get install -y -qq --no-install-recommends "$package" >/dev/null ;;
        coturn | iproute2) RUNLEVEL=1 apt-get install -y -qq "$package" >/dev/null ;; # and starts no server
        *) apt-get install -y -qq chromium >/dev/null || apt-get install -y -qq chromium-browser >/dev/null ;;
    esac || echo "apt-get could not install $package" >&2
done
exit 0
