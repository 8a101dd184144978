#!/bin/bash
# Installs Debian's Chromium, in which the report is tested, where it is not there: through apt, as
# root or with sudo. When it is there it only looks.
set -euo pipefail
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive

command -v chromium >/dev/null && exit 0
printf 'setup: installing chromium, for the tests of the report\n'
root=()
[ "$(id -u)" = 0 ] || root=(sudo --)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
{
    "${root[@]}" apt-get update -qq &&
        "${root[@]}" apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core
} >"$log" 2>&1 || {
    tail -n 5 "$log" >&2
    printf 'setup: chromium could not be installed: apt-get install chromium\n' >&2
    exit 3
}
