#!/bin/bash
# Installs what the recorder needs on a Debian machine and is not there: through apt, as root or
# with sudo. Idempotent; when everything is there it only looks (well under a second). What cannot
# be installed is named with the command that would.
#
#   install.sh          install what is missing
#   install.sh --check  only say what is missing (exit 3 if anything is)
set -euo pipefail
export LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive
export PATH="$PATH:/usr/sbin:/sbin"

only_check=no
[ "${1:-}" = --check ] && only_check=yes

say() { printf 'setup: %s\n' "$*"; }
fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 3
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo -- "$@"
    else
        fail "root is needed for: $*" "run it as root, then run make setup again"
    fi
}

has() { command -v "$1" >/dev/null 2>&1; }

# A Python of 3.11 or newer that can make virtual environments.
has_python() {
    has python3 && python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# The engine is wanted unless the user names one.
wants_engine() { [ -z "${DOCKER_HOST:-}" ]; }

has_rootless_script() {
    has dockerd-rootless.sh || [ -x /usr/share/docker.io/contrib/dockerd-rootless.sh ]
}

has_plugin() { # $1: buildx or compose
    local directory
    for directory in /usr/libexec/docker /usr/lib/docker /usr/local/lib/docker /usr/local/libexec/docker "${HOME:-/root}/.docker"; do
        [ -x "$directory/cli-plugins/docker-$1" ] && return 0
    done
    return 1
}

# Debian packages that are missing: from the host's own suite, and from Debian 13.
own=()
newer=()
optional=()
look() {
    own=() newer=() optional=()
    has_python || own+=(python3 python3-venv)
    has mmdebstrap || own+=(mmdebstrap)
    [ -s /etc/ssl/certs/ca-certificates.crt ] || own+=(ca-certificates)
    has setpriv || own+=(util-linux)
    if wants_engine; then
        has newuidmap || own+=(uidmap)
        has ip || own+=(iproute2)
        has slirp4netns || own+=(slirp4netns)
        has iptables || own+=(iptables)
        has runc || has crun || own+=(runc)
        if ! has dockerd || ! has_rootless_script; then
            newer+=(docker.io containerd)
        fi
        has rootlesskit || has docker-rootlesskit || newer+=(rootlesskit)
    fi
    # For people who use compose.yaml; the recorder itself speaks to the engine's API.
    has docker || optional+=(docker-cli)
    has_plugin buildx || optional+=(docker-buildx)
    has_plugin compose || optional+=(docker-compose)
}

updated=no
apt_update() {
    [ "$updated" = yes ] && return
    say "updating apt's lists"
    as_root apt-get update -qq >/dev/null || fail "apt-get update failed: run it by hand and mend apt's sources"
    updated=yes
}

codename=$(. /etc/os-release && printf %s "${VERSION_CODENAME:-}")

# apt with the same mirror, keys and options as the host, for suite trixie alone, in directories
# of its own: the host's sources stay as they are.
private=
private_apt() {
    if [ -z "$private" ]; then
        private=$(mktemp -d)
        chmod 0755 "$private"
        mkdir -p "$private/lists/partial" "$private/archives/partial" "$private/parts"
        apt-get indextargets --format '$(RELEASE) $(COMPONENT) $(REPO_URI) $(TRUSTED)' 'Created-By: Packages' 'Origin: Debian' |
            sort -u | while read -r release component uri trusted; do
            [ "$component" = main ] || continue
            case "$release" in
            "$codename" | "$codename-updates" | "$codename-security") ;;
            *) continue ;;
            esac
            options="signed-by=/usr/share/keyrings/debian-archive-keyring.gpg"
            [ "$trusted" = yes ] && options="trusted=yes"
            printf 'deb [%s] %s %s main\n' "$options" "$uri" "trixie${release#"$codename"}"
        done >"$private/sources.list"
        printf '%s\n' "Dir::Etc::sourcelist \"$private/sources.list\";" \
            "Dir::Etc::sourceparts \"$private/parts\";" \
            "Dir::State::lists \"$private/lists\";" \
            "Dir::Cache::archives \"$private/archives\";" \
            "Dir::Cache::pkgcache \"\";" "Dir::Cache::srcpkgcache \"\";" \
            "APT::Sandbox::User \"root\";" >"$private/apt.conf"
        as_root env APT_CONFIG="$private/apt.conf" apt-get update -qq >/dev/null 2>&1 || return 1
    fi
    as_root env APT_CONFIG="$private/apt.conf" apt-get "$@"
}

# Debian's packages start the system's own engine and let it start at every boot; ours is another
# one, and that one changes the machine's packet filter. Nobody asked for it: keep it off.
policy=/usr/sbin/policy-rc.d
keep_services_off() {
    [ -e "$policy" ] && return
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 0755 "$policy"
    policy_is_ours=yes
}
release_services() {
    [ "${policy_is_ours:-no}" = yes ] || return 0
    policy_is_ours=no
    as_root rm -f "$policy"
    if [ -d /run/systemd/system ]; then
        as_root systemctl disable --quiet docker.service docker.socket containerd.service 2>/dev/null || true
    fi
}

end() {
    release_services
    [ -z "$private" ] || as_root rm -rf "$private"
    [ -z "${log:-}" ] || rm -f "$log"
}

install_missing() {
    apt_update
    [ ${#newer[@]} -eq 0 ] || keep_services_off
    if [ ${#own[@]} -gt 0 ]; then
        say "installing ${own[*]}"
        as_root apt-get install -y -qq --no-install-recommends "${own[@]}" >"$log" 2>&1 </dev/null || {
            tail -n 5 "$log" >&2
            fail "apt could not install them: apt-get install --no-install-recommends ${own[*]}"
        }
    fi
    has_python || fail "Python 3.11 or newer with venv is missing: apt-get install python3 python3-venv"
    if [ ${#newer[@]} -gt 0 ]; then
        install_from_trixie "${newer[@]}" || {
            say "Debian 13's engine does not install here: taking $codename's"
            as_root apt-get install -y -qq --no-install-recommends --fix-broken docker.io rootlesskit >"$log" 2>&1 </dev/null || {
                tail -n 5 "$log" >&2
                fail "apt could not install an engine: apt-get install docker.io rootlesskit"
            }
        }
    fi
    if [ ${#optional[@]} -gt 0 ]; then
        install_from_trixie "${optional[@]}" ||
            say "without compose (only compose.yaml needs it): apt-get install ${optional[*]}"
    fi
}

install_from_trixie() {
    say "installing $* of Debian 13"
    if [ "$codename" = trixie ]; then
        as_root apt-get install -y -qq --no-install-recommends "$@" >"$log" 2>&1 </dev/null
        return
    fi
    private_apt --version >/dev/null 2>&1 || return 1
    local debs="$private/debs" package
    rm -rf "$debs" && mkdir "$debs"
    for package; do
        (cd "$debs" && private_apt download -qq "$package" >"$log" 2>&1) || return 1
    done
    # Their other dependencies are met by the host's own suite.
    as_root apt-get install -y -qq --no-install-recommends "$debs"/*.deb >"$log" 2>&1 </dev/null
}

# The unprivileged user that runs the engine when set-up is root's, and what its engine needs.
prepare_user() {
    wants_engine || return 0
    if [ ! -c /dev/net/tun ]; then
        as_root mkdir -p /dev/net
        as_root mknod -m 0666 /dev/net/tun c 10 200
    elif [ ! -w /dev/net/tun ] || [ "$(stat -c %a /dev/net/tun)" != 666 ]; then
        as_root chmod 0666 /dev/net/tun # udev's usual mode
    fi
    local user home
    if [ "$(id -u)" = 0 ]; then
        user=recorder
        home=/var/lib/recorder
        if ! id "$user" >/dev/null 2>&1; then
            useradd --system --user-group --home-dir "$home" --shell /usr/sbin/nologin "$user"
        fi
        install -d -m 0711 -o "$user" -g "$user" "$home" "$home/engine"
    else
        user=$(id -un)
        home=/var/lib/recorder-$(id -u)
        [ -w "$home/engine" ] || as_root install -d -m 0711 -o "$(id -u)" -g "$(id -g)" "$home" "$home/engine"
    fi
    local kind
    for kind in uid gid; do
        if ! grep -qs "^$user:" "/etc/sub$kind"; then
            local first
            first=$(awk -F: 'BEGIN { next_free = 100000 } $2 + $3 > next_free { next_free = $2 + $3 } END { print next_free }' "/etc/sub$kind" 2>/dev/null || echo 100000)
            as_root usermod "--add-sub${kind}s" "$first-$((first + 65535))" "$user"
        fi
    done
}

look
missing=("${own[@]}" "${newer[@]}" "${optional[@]}")
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$only_check" = yes ]; then
        fail "missing: ${missing[*]}" "run make setup, or: apt-get install ${missing[*]}"
    fi
    has apt-get || fail "missing: ${missing[*]}" "install them: this is not a Debian machine"
    trap end EXIT
    log=$(mktemp)
    install_missing
    look
    missing=("${own[@]}" "${newer[@]}")
    [ ${#missing[@]} -eq 0 ] || fail "still missing: apt-get install ${missing[*]}"
fi
[ "$only_check" = yes ] || prepare_user
