"""Run inside a session: what it can see, reach, write and do, as one JSON object.

`python3 survey.py OUT PART PART`: the credential to look for is the two parts with `~` between,
so that the command itself does not hold it. Standard library only.
"""

import ctypes
import errno
import json
import os
import signal
import socket
import stat
import sys

libc = ctypes.CDLL(None, use_errno=True)


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20).decode("utf-8", "replace")
    except OSError as error:
        return f"{errno.errorcode[error.errno]}"


def attempt(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    return "done"


def resolve(name):
    try:
        return [found[4][0] for found in socket.getaddrinfo(name, 443)]
    except OSError as error:
        return f"{type(error).__name__}"


def connect(family, address):
    def go():
        with socket.socket(family, socket.SOCK_STREAM) as client:
            client.settimeout(2)
            client.connect(address)

    return attempt(go)


def datagram(address):
    def go():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.sendto(b"word", address)

    return attempt(go)


def through(family, address, request):
    with socket.socket(family, socket.SOCK_STREAM) as client:
        client.settimeout(5)
        try:
            client.connect(address)
            client.sendall(request)
            return client.recv(4096).decode("latin-1").split("\r\n")[0]
        except OSError as error:
            return type(error).__name__


def listening():
    """Listening TCP sockets and every UDP socket of this network namespace."""
    found = []
    for table, state in (
        ("tcp", "0A"),
        ("tcp6", "0A"),
        ("udp", None),
        ("udp6", None),
        ("raw", None),
    ):
        for row in read(f"/proc/net/{table}").splitlines()[1:]:
            columns = row.split()
            if len(columns) > 3 and state in (None, columns[3]):
                host, _, port = columns[1].partition(":")
                found.append([table, host, int(port, 16)])
    return found


def unix_sockets():
    return [
        row.split(None, 7)[7]
        for row in read("/proc/net/unix").splitlines()[1:]
        if len(row.split(None, 7)) == 8
    ]


PSEUDO = {"/proc", "/sys"}


def walk():
    """Every entry of the file system but of the kernel's own: (path, stat)."""
    pending = ["/"]
    while pending:
        directory = pending.pop()
        try:
            entries = list(os.scandir(directory))
        except OSError:
            continue
        for entry in entries:
            if entry.path in PSEUDO:
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            yield entry.path, status
            if stat.S_ISDIR(status.st_mode):
                pending.append(entry.path)


def files(needle):
    writable, privileged, holding, devices = [], [], [], []
    for path, status in walk():
        mode = status.st_mode
        if not stat.S_ISLNK(mode) and os.access(path, os.W_OK):
            writable.append(path)
        if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
            privileged.append(path)
        if stat.S_ISBLK(mode) or stat.S_ISCHR(mode):
            devices.append(path)
        if stat.S_ISREG(mode) and not path.startswith("/usr/"):
            try:
                with open(path, "rb") as file:
                    content = file.read()
            except OSError:
                continue
            holding += [[path, name] for name, word in needle.items() if word in content]
    return writable, privileged, holding, devices


def processes():
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        base = f"/proc/{entry}"
        try:
            uid = os.stat(base).st_uid
        except OSError:
            continue
        pid = int(entry)
        found[entry] = {
            "uid": uid,
            "effective": next(
                (
                    row.split()[2]
                    for row in read(f"{base}/status").splitlines()
                    if row.startswith("Uid:")
                ),
                "",
            ),
            "comm": read(f"{base}/comm").strip(),
            "environ": read(f"{base}/environ"),
            "mem": attempt(lambda b=base: os.close(os.open(f"{b}/mem", os.O_RDONLY))),
            "fd": attempt(lambda b=base: os.listdir(f"{b}/fd")),
            "root": attempt(lambda b=base: os.readlink(f"{b}/root")),
            "cwd": attempt(lambda b=base: os.readlink(f"{b}/cwd")),
            "cmdline": read(f"{base}/cmdline"),
            # Signal 0 asks for the permission alone.
            "signal": attempt(lambda p=pid: os.kill(p, 0)),
        }
    return found


def kill_others():
    return {
        str(pid): attempt(lambda p=pid: os.kill(p, signal.SIGKILL))
        for pid in sorted(map(int, filter(str.isdigit, os.listdir("/proc"))))
        if os.path.exists(f"/proc/{pid}") and status_uid(pid) not in ("", str(os.getuid()))
    }


def status_uid(pid):
    for row in read(f"/proc/{pid}/status").splitlines():
        if row.startswith("Uid:"):
            return row.split()[1]
    return ""


SYSCALLS = {
    "unshare user": (272, 0x10000000, 0, 0, 0, 0),
    "unshare mount": (272, 0x20000, 0, 0, 0, 0),
    "unshare network": (272, 0x40000000, 0, 0, 0, 0),
    "unshare time": (272, 0x80, 0, 0, 0, 0),
    "clone user": (56, 0x10000000 | 17, 0, 0, 0, 0),
    "clone3": (435, 0, 0, 0, 0, 0),
    "setns": (308, -1, 0, 0, 0, 0),
    "mount": (165, 0, 0, 0, 0, 0),
    "umount": (166, 0, 0, 0, 0, 0),
    "pivot_root": (155, 0, 0, 0, 0, 0),
    "chroot": (161, 0, 0, 0, 0, 0),
    "move_mount": (429, -1, 0, -1, 0, 0),
    "open_tree": (428, -1, 0, 0, 0, 0),
    "fsopen": (430, 0, 0, 0, 0, 0),
    "mount_setattr": (442, -1, 0, 0, 0, 0),
    "ptrace": (101, 0, 0, 0, 0, 0),
    "process_vm_readv": (310, 1, 0, 0, 0, 0),
    "process_vm_writev": (311, 1, 0, 0, 0, 0),
    "process_madvise": (440, -1, 0, 0, 0, 0),
    "pidfd_getfd": (438, -1, 0, 0, 0, 0),
    "kcmp": (312, 1, 1, 0, 0, 0),
    "bpf": (321, 0, 0, 0, 0, 0),
    "io_uring_setup": (425, 1, 0, 0, 0, 0),
    "io_uring_enter": (426, -1, 0, 0, 0, 0),
    "keyctl": (250, 0, -3, 0, 0, 0),
    "add_key": (248, 0, 0, 0, 0, 0),
    "request_key": (249, 0, 0, 0, 0, 0),
    "userfaultfd": (323, 1, 0, 0, 0, 0),
    "perf_event_open": (298, 0, 0, -1, -1, 0),
    "personality": (135, 0x0040000, 0, 0, 0, 0),
    "name_to_handle_at": (303, -100, 0, 0, 0, 0),
    "open_by_handle_at": (304, -1, 0, 0, 0, 0),
    "fanotify_init": (300, 0, 0, 0, 0, 0),
    "memfd_secret": (447, 0, 0, 0, 0, 0),
    "syslog": (103, 3, 0, 0, 0, 0),
    "init_module": (175, 0, 0, 0, 0, 0),
    "kexec_load": (246, 0, 0, 0, 0, 0),
    "swapon": (167, 0, 0, 0, 0, 0),
    "reboot": (169, 0, 0, 0, 0, 0),
    "sethostname": (170, 0, 0, 0, 0, 0),
    "settimeofday": (164, 0, 0, 0, 0, 0),
    "adjtimex": (159, 0, 0, 0, 0, 0),
    "acct": (163, 0, 0, 0, 0, 0),
    "quotactl": (179, 0, 0, 0, 0, 0),
    "iopl": (172, 3, 0, 0, 0, 0),
    "modify_ldt": (154, 0, 0, 0, 0, 0),
    "lookup_dcookie": (212, 0, 0, 0, 0, 0),
    "move_pages": (279, 1, 0, 0, 0, 0),
    "vhangup": (153, 0, 0, 0, 0, 0),
}


def system_call(number, *arguments):
    """The error of a call, in a child so that one that succeeds changes nothing here."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        result = libc.syscall(number, *(ctypes.c_long(a) for a in arguments))
        if os.getpid() != 0 and result >= 0:
            os.write(writing, b"done")
        else:
            os.write(writing, errno.errorcode.get(ctypes.get_errno(), "?").encode())
        os._exit(0)
    os.close(writing)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    answer = os.read(reading, 64).decode()
    os.close(reading)
    return answer or f"exit {status}"


def in_child(action):
    """How a child that does this ends: its exit status, or minus its signal."""
    child = os.fork()
    if child == 0:
        try:
            action()
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def interrupt_80():
    """getpid by the 32-bit gate: mov eax, 20; int 0x80; ret."""
    import mmap

    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    os._exit(0 if ctypes.CFUNCTYPE(ctypes.c_int)(address)() > 0 else 1)


def x32():
    ctypes.set_errno(0)
    os._exit(0 if libc.syscall(0x40000000 | 39) > 0 else 1)


def family(number, kind):
    return attempt(lambda: socket.socket(number, kind).close())


def main():
    out, first, second = sys.argv[1:4]
    credential = f"{first}~{second}".encode()
    # In two parts: this file is itself among those that are searched.
    needle = {"credential": credential, "key": b"PRIVATE " + b"KEY-----"}
    writable, privileged, holding, devices = files(needle)
    ask = b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n"
    elsewhere = ask % (b"example.com:443", b"example.com:443")
    found = {
        "interfaces": [name for _, name in socket.if_nameindex()],
        "routes": read("/proc/net/route").splitlines()[1:],
        "routes6": read("/proc/net/ipv6_route").splitlines(),
        "addresses6": read("/proc/net/if_inet6"),
        "loopback6": attempt(lambda: socket.socket(socket.AF_INET6).bind(("::1", 0))),
        "resolver": read("/etc/resolv.conf"),
        "hosts": read("/etc/hosts"),
        "names": {
            name: resolve(name)
            for name in (
                "example.com",
                "api.anthropic.com",
                "host.docker.internal",
                "gateway.docker.internal",
                "host.containers.internal",
                "recorder.test",
            )
        },
        "connections": {
            f"{host}:{port}": connect(socket.AF_INET, (host, port))
            for host, port in (
                ("1.1.1.1", 443),
                ("10.0.2.2", 80),
                ("10.0.2.3", 53),
                ("172.17.0.1", 80),
                ("172.18.0.1", 443),
                ("192.168.0.1", 80),
                ("169.254.169.254", 80),
                ("100.100.100.200", 80),
                ("127.0.0.11", 53),
                ("127.0.0.1", 2375),
            )
        },
        "datagrams": {
            f"{host}:{port}": datagram((host, port))
            for host, port in (("8.8.8.8", 53), ("10.0.2.3", 53), ("255.255.255.255", 9))
        },
        "families": {
            "packet": family(socket.AF_PACKET, socket.SOCK_RAW),
            "raw": family(socket.AF_INET, socket.SOCK_RAW),
            "vsock": family(40, socket.SOCK_STREAM),
            "alg": family(38, socket.SOCK_SEQPACKET),
            "bluetooth": family(31, socket.SOCK_RAW),
        },
        "listening": listening(),
        "unix": unix_sockets(),
        "proxy": through(socket.AF_INET, ("127.0.0.1", 3128), elsewhere),
        "socket": through(socket.AF_UNIX, "/run/recorder/proxy.sock", elsewhere),
        "socket_directory": {
            "create": attempt(lambda: open("/run/recorder/mine", "w").close()),
            "remove": attempt(lambda: os.unlink("/run/recorder/proxy.sock")),
            "holds": sorted(os.listdir("/run/recorder")),
        },
        "mounts": [row.split() for row in read("/proc/self/mountinfo").splitlines()],
        "directories": {
            path: attempt(lambda p=path: os.listdir(p))
            if not os.path.isdir(path)
            else sorted(os.listdir(path))
            if os.access(path, os.R_OK)
            else "EACCES"
            for path in ("/home", "/mnt", "/media", "/srv", "/root", "/opt", "/var/log/recorder")
        },
        "opened": {
            path: attempt(lambda p=path: open(p, "rb").close())
            for path in (
                "/etc/recorder/session.json",
                "/opt/recorder/outcome.json",
                "/opt/harness/claude",
                "/etc/shadow",
                "/proc/kcore",
                "/proc/cmdline",
                "/dev/mem",
                "/dev/kmsg",
            )
        },
        "replaced": {
            path: attempt(lambda p=path: os.close(os.open(p, os.O_WRONLY | os.O_APPEND)))
            for path in (
                "/etc/recorder/session.json",
                "/etc/recorder/ca.pem",
                "/etc/passwd",
                "/etc/hosts",
                "/etc/resolv.conf",
                "/etc/hostname",
                "/etc/claude-code/managed-settings.json",
                "/opt/recorder/guard.py",
                "/opt/recorder/forwarder.py",
                "/opt/harness/claude",
                "/usr/bin/python3",
                "/usr/bin/bash",
            )
        },
        "created": {
            path: attempt(lambda p=path: open(f"{p}/mine", "w").close())
            for path in (
                "/",
                "/bin",
                "/etc",
                "/etc/claude-code",
                "/etc/recorder",
                "/home",
                "/lib",
                "/mnt",
                "/opt",
                "/opt/harness",
                "/opt/recorder",
                "/root",
                "/run",
                "/session",
                "/usr",
                "/usr/bin",
                "/usr/local/bin",
                "/usr/local/lib",
                "/var",
                "/proc/sys/kernel",
                "/sys",
            )
        },
        "chmod": attempt(lambda: os.chmod("/opt/harness/claude", 0o755)),
        "rename": attempt(lambda: os.rename("/opt/harness/claude", "/opt/harness/other")),
        "writable": writable,
        "privileged": privileged,
        "occupied": {
            path: attempt(lambda p=path: os.unlink(p))
            for path in ("/tmp/cc-socks", f"/tmp/cc-socks-{os.getuid()}")
        },
        "holding": holding,
        "devices": devices,
        "status": dict(
            row.split(":\t", 1) for row in read("/proc/self/status").splitlines() if ":\t" in row
        ),
        "processes": processes(),
        "killed": kill_others(),
        "setuid": attempt(lambda: os.setuid(0)),
        "setgroups": attempt(lambda: os.setgroups([0])),
        "fifo": attempt(lambda: os.mkfifo("/tmp/pipe")),
        "device": attempt(lambda: os.mknod("/tmp/device", 0o600 | stat.S_IFCHR, os.makedev(1, 3))),
        "system_calls": {name: system_call(*call) for name, call in SYSCALLS.items()},
        "interrupt_80": in_child(interrupt_80),
        "x32": in_child(x32),
        "environment": dict(os.environ),
        "uname": list(os.uname()),
        "host": {
            path: read(path)
            for path in (
                "/etc/hostname",
                "/proc/sys/kernel/hostname",
                "/proc/cmdline",
                "/proc/mounts",
                "/proc/partitions",
                "/proc/swaps",
                "/etc/machine-id",
                "/proc/1/cgroup",
            )
        },
        "blocks": sorted(os.listdir("/sys/block")) if os.path.isdir("/sys/block") else [],
    }
    with open(out, "w") as file:
        json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
