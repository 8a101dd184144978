#!/bin/bash
# Installs what only the tests use and is not there: Debian's Chromium, in which the report is
# looked at, and the public tools of docs/evidence.md. Through apt, as root or with sudo; when all
# is there it only looks.
set -euo pipefail
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive

missing=()
for program in chromium jq openssl; do
    command -v "$program" >/dev/null || missing+=("$program")
done
# What the browser's driver is linked with, and a minimal system does not have.
compgen -G '/usr/lib/*/libatomic.so.1' >/dev/null || missing+=(libatomic1)
[ ${#missing[@]} -gt 0 ] || exit 0
case " ${missing[*]} " in *' chromium '*) missing+=(fonts-dejavu-core) ;; esac
printf 'setup: installing %s, for the tests\n' "${missing[*]}"
root=()
[ "$(id -u)" = 0 ] || root=(sudo --)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
{
    "${root[@]}" apt-get update -qq &&
        "${root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
} >"$log" 2>&1 || {
    tail -n 5 "$log" >&2
    printf 'setup: they could not be installed: apt-get install %s\n' "${missing[*]}" >&2
    exit 3
}
