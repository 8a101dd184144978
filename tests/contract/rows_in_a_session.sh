# Run inside a session in the harness's place: sh rows_in_a_session.sh MARKER PORT. What each row
# of the contract could find out goes to found/ROW; the stream is printed last.
marker=$1 port=$2
mkdir -p found

# G01: what lies outside. Everything that is found is printed, so nothing should be.
{
    cat "$HOME/../../root/.claude/CLAUDE.md" /home/*/.ssh/* /mnt/* /var/tmp/*/arms/* 2>/dev/null
    find / -name 'batch.json' -not -path '/proc/*' 2>/dev/null
    find / -xdev -name "$marker*" -not -path '/workspace/*' 2>/dev/null
    for process in /proc/[0-9]*; do
        cat "$process/root/etc/shadow" 2>/dev/null
        ls "$process/cwd/" 2>/dev/null | grep -x batch.lock
    done
    ls /home /mnt 2>/dev/null
} >found/G01

# G02, G03: its own places.
pwd >found/G02 && echo written >>found/G02
echo '{"probe_session":"by-hand"}' >"$RECORDER_LOG_DIR/hooks.jsonl" && echo "$RECORDER_LOG_DIR" >found/G03

# G05: every way to a server on the host's loopback, and out.
{
    curl -sf -m 3 --noproxy '*' "http://127.0.0.1:$port/"
    curl -sf -m 3 -x "$HTTPS_PROXY" "http://127.0.0.1:$port/"
    curl -sf -m 3 -p -x "$HTTPS_PROXY" "http://127.0.0.1:$port/"
    curl -sf -m 3 -x "$HTTPS_PROXY" "https://127.0.0.1:$port/"
    python3 -I - "$port" <<'END'
import socket, sys
for host in ("127.0.0.1", "10.0.2.2", "172.17.0.1", "host.docker.internal"):
    try:
        with socket.create_connection((host, int(sys.argv[1])), 2) as made:
            made.sendall(b"GET / HTTP/1.0\r\n\r\n")
            print(made.recv(4096).decode())
    except OSError:
        continue
END
    git clone -q "http://127.0.0.1:$port/x.git" cloned
    gh api "http://127.0.0.1:$port/"
} >found/G05 2>/dev/null

# G07, G08, G09, G14
{ touch /run/recorder/x && echo made; } >found/G07 2>/dev/null
printf '%s\n%s\n' "$HOME" "$CLAUDE_CONFIG_DIR" >found/G08
ls -A "$HOME" >found/G15
ls / | grep -x -e home -e mnt >found/G14
cat stream
