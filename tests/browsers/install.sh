#!/bin/sh
# Installs the browsers that tests drive, Chromium and Firefox, where apt-get can and this is root. Otherwise it only
# says what is missing: the tests of that browser then fail, unless SHOAL_TEST_BROWSERS=none.
set -u
[ "${SHOAL_TEST_BROWSERS:-}" = none ] && exit 0

# has NAME...: one of these programs is on the path.
has() {
    for name in "$@"; do
        command -v "$name" >/dev/null 2>&1 && return 0
    done
    return 1
}

missing=
has chromium chromium-browser google-chrome || missing="$missing chromium"
has firefox-esr firefox || missing="$missing firefox-esr"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! has apt-get; then
    echo "browsers that tests need are not installed:$missing; install them, or set SHOAL_TEST_BROWSERS=none" >&2
    exit 0
fi
echo "installing$missing for the tests in browsers"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq || echo "apt-get update failed; trying with the lists that are here" >&2
for package in $missing; do
    case $package in
        firefox-esr) apt-get install -y -qq firefox-esr >/dev/null || apt-get install -y -qq firefox >/dev/null ;;
        *) apt-get install -y -qq chromium >/dev/null || apt-get install -y -qq chromium-browser >/dev/null ;;
    esac || echo "apt-get could not install $package" >&2
done
exit 0
