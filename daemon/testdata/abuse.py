"""Attempts of a hostile guest, one a case: each says what is tried and what must
come of it. Run as guest root; prints a line of JSON a case.

A case's function returns what happened as text; 'EPERM' and the like when a call
failed. What must come of it is a pattern of that text.
"""

import ctypes
import errno
import json
import mmap
import os
import re
import resource
import select
import signal
import socket
import struct
import sys
import time

LIBC = ctypes.CDLL(None, use_errno=True)
CASES = []

# System calls by number (x86-64); those that Python has no function for.
NR = dict(
    ptrace=101, syslog=103, modify_ldt=154, pivot_root=155, adjtimex=159, acct=163, settimeofday=164, mount=165, umount2=166, swapon=167,
    reboot=169, sethostname=170, iopl=172, ioperm=173, init_module=175, quotactl=179, clock_settime=227, mbind=237, kexec_load=246, add_key=248,
    request_key=249, keyctl=250, migrate_pages=256, unshare=272, move_pages=279, perf_event_open=298, fanotify_init=300, name_to_handle_at=303,
    open_by_handle_at=304, setns=308, process_vm_readv=310, process_vm_writev=311, kcmp=312, finit_module=313, bpf=321, userfaultfd=323, kexec_file_load=320,
    io_uring_setup=425, pidfd_open=434, pidfd_getfd=438, open_tree=428, move_mount=429, fsopen=430, mount_setattr=442, memfd_secret=447,
    vhangup=153, lookup_dcookie=212, uselib=134, ustat=136, sysfs=139, personality=135, chroot=161, clone3=435, cachestat=451, lsm_list_modules=461,
)


def call(name, *args):
    """The system call's outcome: 'done N' or the error's name."""
    ctypes.set_errno(0)
    out = LIBC.syscall(ctypes.c_long(NR[name]), *[a if isinstance(a, (bytes, ctypes.Array, ctypes.Structure, type(None))) else ctypes.c_long(a) for a in args])
    return errno.errorcode.get(ctypes.get_errno(), "?") if out < 0 else f"done {out}"


def tried(action):
    """What an action comes to: what it returns, or the name of its error."""
    try:
        return f"done {action()!r:.200}"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))
    except (MemoryError, ValueError) as e:
        return type(e).__name__


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def read(path, size=200):
    with open(path, "rb") as f:
        return f.read(size)


def case(ident, attempt, expected):
    def add(f):
        CASES.append((ident, attempt, expected, f))
        return f
    return add


def calls(ident, attempt, expected, name, *args):
    case(ident, attempt, expected)(lambda: call(name, *args))


def acts(ident, attempt, expected, action):
    case(ident, attempt, expected)(lambda: tried(action))


REFUSED = r"EPERM|EACCES|ENOSYS|EINVAL|EROFS|ENOENT|ENODEV|ENXIO|EOPNOTSUPP|ENOTSUP|EBADF|EFAULT|ESRCH|ENOTTY|EIO|ENOTDIR|EBUSY"
buffer = ctypes.create_string_buffer(4096)

# The kernel's dangerous doors.
calls("K02", "load a BPF program", REFUSED, "bpf", 5, buffer, 128)
calls("K03", "make a BPF map", REFUSED, "bpf", 0, buffer, 128)
calls("K04", "handle page faults in user space", REFUSED, "userfaultfd", 0)
calls("K05", "set up io_uring", REFUSED, "io_uring_setup", 8, buffer)
calls("K06", "add a key to the kernel's keyring", REFUSED + "|EDQUOT", "add_key", b"user", b"k", b"x", 1, -3)
calls("K07", "read the session keyring", REFUSED + r"|done \d+", "keyctl", 0, -3, 0)
calls("K08", "load a kernel module", REFUSED, "init_module", buffer, 4096, b"")
calls("K09", "load a kernel module from a file", REFUSED, "finit_module", 0, b"", 0)
calls("K10", "load another kernel", REFUSED, "kexec_load", 0, 0, None, 0)
calls("K11", "load another kernel from a file", REFUSED, "kexec_file_load", 0, 0, 0, None, 0)
calls("K12", "reboot the machine", REFUSED, "reboot", 0xFEE1DEAD, 672274793, 0x01234567, 0)
calls("K13", "power the machine off", REFUSED, "reboot", 0xFEE1DEAD, 672274793, 0x4321FEDC, 0)
calls("K14", "use a swap file", REFUSED, "swapon", b"/workspace/x", 0)
calls("K15", "account processes to a file", REFUSED, "acct", b"/workspace/x")
calls("K16", "set a disk quota", REFUSED, "quotactl", 0x800002, b"/dev/vda", 0, buffer)
calls("K17", "get the rights to I/O ports", REFUSED, "iopl", 3)
calls("K18", "get the rights to one I/O port", REFUSED, "ioperm", 0x80, 1, 1)
calls("K19", "change the local descriptor table", REFUSED + r"|done 0", "modify_ldt", 0, buffer, 16)
calls("K20", "count the host's events", REFUSED, "perf_event_open", buffer, -1, 0, -1, 0)
calls("K21", "watch all of a file system", REFUSED, "fanotify_init", 0, 0)
calls("K22", "open a file by its handle", REFUSED + "|ESTALE", "open_by_handle_at", -100, buffer, 0)
calls("K23", "get a file's handle", REFUSED + "|EOVERFLOW", "name_to_handle_at", -100, b"/", buffer, buffer, 0)
calls("K24", "make memory that the kernel can't see", REFUSED, "memfd_secret", 0)
calls("K25", "compare kernel objects", REFUSED, "kcmp", os.getpid(), 1, 0, 0, 0)
calls("K26", "read the kernel's cookies", REFUSED, "lookup_dcookie", 1, buffer, 4096)
calls("K27", "hang the terminal up", REFUSED + "|done 0", "vhangup")
calls("K28", "move another process's pages", REFUSED, "move_pages", 1, 1, buffer, buffer, buffer, 0)
calls("K29", "migrate another process's memory", REFUSED, "migrate_pages", 1, 8, buffer, buffer)
calls("K30", "list security modules", REFUSED, "lsm_list_modules", buffer, buffer, 0)
acts("K31", "execute a page that is writable too, which systems that JIT need", r"done .*", lambda: mmap.mmap(-1, 4096, prot=7).close())

# Time and names that are the host's.
calls("T01", "set the clock", REFUSED, "clock_settime", 0, buffer)
calls("T02", "set the time of day", REFUSED, "settimeofday", buffer, None)
acts("T03", "slew the clock", REFUSED + r"|done -1", lambda: LIBC.adjtimex(struct.pack("=I", 1) + bytes(400)))
calls("T04", "name the machine: only the sandbox's own name", r"done 0|EPERM", "sethostname", b"evil", 4)

# Mounts and namespaces.
calls("M01", "mount a block device of the host", REFUSED + "|ENOTBLK", "mount", b"/dev/vda", b"/mnt", b"ext4", 0, None)
calls("M02", "mount the kernel's debugger", REFUSED, "mount", b"debugfs", b"/mnt", b"debugfs", 0, None)
calls("M03", "mount the trace file system", REFUSED, "mount", b"tracefs", b"/mnt", b"tracefs", 0, None)
calls("M04", "mount the security file system", REFUSED, "mount", b"securityfs", b"/mnt", b"securityfs", 0, None)
calls("M05", "mount over the network", REFUSED, "mount", b"127.0.0.1:/", b"/mnt", b"nfs", 0, None)
calls("M06", "mount through FUSE without its device", REFUSED, "mount", b"x", b"/mnt", b"fuse", 0, b"fd=99,rootmode=40000,user_id=0,group_id=0")
calls("M07", "make /inputs writable by a remount", REFUSED + "|done 0", "mount", b"none", b"/inputs", None, 32, None)
acts("M08", "write below /inputs after that", "EROFS|EPERM|EACCES", lambda: write("/inputs/abuse", "x"))
acts("M09", "write below /skills", "EROFS|EPERM|EACCES", lambda: write("/skills/abuse", "x"))
acts("M10", "write to PID 1's program", "EROFS|EPERM|EACCES|ETXTBSY", lambda: write("/.init/sandbox-init", "x"))
acts("M11", "replace the resolver's file of the host", "EROFS|EPERM|EACCES|EBUSY", lambda: write("/etc/resolv.conf", "nameserver 127.0.0.1"))
calls("M12", "swap the root", REFUSED, "pivot_root", b"/", b"/mnt")
case("M13", "enter PID 1's mount namespace, which is the guest's own", REFUSED + r"|done 0")(lambda: call("setns", os.open("/proc/1/ns/mnt", os.O_RDONLY), 0))
acts("M14", "climb out of a chroot into the sandbox's own root", r"done .*", lambda: (os.makedirs("/tmp/jail", exist_ok=True), os.chroot("/tmp/jail"), os.chdir("../../../../.."), sorted(os.listdir("."))[:3]))
acts("M15", "find the host's root above the sandbox's", r"done 'same'", lambda: "same" if os.stat("/..").st_ino == os.stat("/").st_ino else "other")
calls("M16", "open a mount tree", REFUSED, "open_tree", -100, b"/", 1)
calls("M17", "make a file system context", REFUSED, "fsopen", b"ext4", 0)
acts("M18", "become root of another user namespace, and set its clock", REFUSED, lambda: unshared())


def unshared():
    if call("unshare", 0x10000000) != "done 0":
        raise OSError(errno.EPERM, "")
    outcome = call("clock_settime", 0, buffer)
    raise OSError(getattr(errno, outcome, errno.EPERM) if outcome != "done 0" else 0, outcome)


# /proc and /sys.
for ident, attempt, path, text in (
    ("P01", "run a program of the host's when something dumps core", "/proc/sys/kernel/core_pattern", "|/bin/sh"),
    ("P02", "pull the host's emergency lever", "/proc/sysrq-trigger", "b"),
    ("P03", "run a program of the host's for a module", "/proc/sys/kernel/modprobe", "/workspace/x"),
    ("P04", "drop the host's caches", "/proc/sys/vm/drop_caches", "3"),
    ("P05", "let memory be overcommitted", "/proc/sys/vm/overcommit_memory", "1"),
    ("P06", "turn address randomisation off", "/proc/sys/kernel/randomize_va_space", "0"),
    ("P07", "panic on the next fault", "/proc/sys/kernel/panic_on_oops", "1"),
    ("P08", "register a format of programs", "/proc/sys/fs/binfmt_misc/register", ":x:M::x::/bin/sh:"),
    ("P09", "save itself from the memory killer", "/proc/self/oom_score_adj", "-1000"),
    ("P10", "run a helper when a device appears", "/sys/kernel/uevent_helper", "/bin/sh"),
    ("P11", "wake the machine's sleep", "/sys/power/state", "mem"),
    ("P12", "unplug a processor", "/sys/devices/system/cpu/cpu1/online", "0"),
    ("P13", "set the backlight or any firmware variable", "/sys/firmware/efi/vars/x", "x"),
    ("P14", "set a block device's scheduler", "/sys/block/vda/queue/scheduler", "none"),
    ("P15", "run a program when a cgroup empties", "/sys/fs/cgroup/release_agent", "/workspace/x"),
):
    acts(ident, attempt, REFUSED if ident != "P09" else REFUSED + "|done .*", lambda path=path, text=text: write(path, text))
for ident, attempt, path in (
    ("P20", "read physical memory", "/dev/mem"),
    ("P21", "read the kernel's memory", "/proc/kcore"),
    ("P22", "read the kernel's log", "/dev/kmsg"),
    ("P23", "read the kernel's log in /proc", "/proc/kmsg"),
    ("P24", "read the kernel's symbols", "/proc/kallsyms"),
    ("P25", "read the kernel's configuration", "/proc/config.gz"),
    ("P26", "read the host's partitions", "/dev/vda"),
    ("P27", "read the host's passwords by PID 1's root", "/proc/1/root/../../etc/shadow.host"),
    ("P28", "read the scheduler's debugging", "/sys/kernel/debug/sched/debug"),
):
    acts(ident, attempt, REFUSED, lambda path=path: read(path))
acts("P30", "see processes of the host", r"done True", lambda: all(int(p) < 100000 and b"sandboxd" not in read(f"/proc/{p}/comm") for p in os.listdir("/proc") if p.isdigit() and os.path.exists(f"/proc/{p}/comm")))
acts("P31", "see mounts of the host", r"done True", lambda: b"/var/lib/media-sandbox" not in read("/proc/self/mountinfo", 1 << 20) and b"ext4" not in read("/proc/mounts", 1 << 20))
acts("P32", "see the host's network devices", r"done True", lambda: {i[1] for i in socket.if_nameindex()} <= {"lo", "tap0", "eth0"})
acts("P33", "find the API's socket", r"done \[\]", lambda: [p for p in ("/run/media-sandbox/api.sock", "/var/run/docker.sock", "/run/systemd/private", "/run/dbus/system_bus_socket") if os.path.exists(p)])
acts("P34", "find the store's credentials in the environment", r"done \[\]", lambda: [k for k in os.environ if "AWS" in k or "SECRET" in k or "TOKEN" in k])

# Device nodes.
for ident, attempt, kind, major, minor in (
    ("D01", "make and open a node of physical memory", 0o020000, 1, 1),
    ("D02", "make and open a node of I/O ports", 0o020000, 1, 4),
    ("D03", "make and open a node of the first disk", 0o060000, 254, 0),
    ("D04", "make and open a node of a SCSI disk", 0o060000, 8, 0),
    ("D05", "make and open a node of a loop device", 0o060000, 7, 0),
    ("D06", "make and open a node of the loop devices' control", 0o020000, 10, 237),
    ("D07", "make and open a node of KVM", 0o020000, 10, 232),
    ("D08", "make and open a node of a host's terminal", 0o020000, 4, 1),
    ("D09", "make and open a node of the kernel's log", 0o020000, 1, 11),
    ("D10", "make and open a node of the device mapper", 0o020000, 10, 236),
):
    def node(kind=kind, major=major, minor=minor, ident=ident):
        path = f"/tmp/{ident}"
        os.mknod(path, kind | 0o600, os.makedev(major, minor))
        return os.open(path, os.O_RDWR)
    acts(ident, attempt, REFUSED, node)
acts("D11", "make a node below /outputs", REFUSED + "|done .*", lambda: os.mknod("/outputs/node", 0o020600, os.makedev(1, 1)))  # it is skipped as an output
acts("D12", "use the host's TUN device", REFUSED, lambda: __import__("fcntl").ioctl(os.open("/dev/net/tun", os.O_RDWR), 0x400454CA, struct.pack("16sH22x", b"evil", 1)))

# Other processes, and signals.
acts("S02", "read PID 1's memory", REFUSED, lambda: os.pread(os.open("/proc/1/mem", os.O_RDONLY), 8, 0))
calls("S03", "read PID 1's memory by a call: it is the guest's own", REFUSED + r"|done \d+", "process_vm_readv", 1, buffer, 1, buffer, 1, 0)
calls("S04", "write PID 1's memory by a call: it is the guest's own", REFUSED + r"|done \d+", "process_vm_writev", 1, buffer, 1, buffer, 1, 0)
case("S05", "take a descriptor out of PID 1: it is the guest's own", REFUSED + r"|done \d+")(lambda: stolen())
acts("S06", "signal a process that is not there", "ESRCH", lambda: os.kill(4000000, signal.SIGKILL))


def stolen():
    fd = call("pidfd_open", 1, 0)
    if not fd.startswith("done"):
        return fd
    return call("pidfd_getfd", int(fd.split()[1]), 3, 0)


# The channel to the host.
acts("C01", "speak garbage on PID 1's channel", r"done .*|EPERM|EACCES|ECONNREFUSED", lambda: spoken(b"\xff" * 65536))
acts("C02", "announce a frame of four gigabytes", r"done .*|EPERM|EACCES|ECONNREFUSED", lambda: spoken(b"\xff\xff\xff\xff\x01"))
acts("C03", "open a thousand connections to the host", r"done .*|EPERM|EACCES|ECONNREFUSED|EMFILE|EAGAIN", lambda: crowd(1000))
acts("C04", "lie in the journal of closed files", r"done .*|EPERM|EACCES", lambda: open("/.journal/closed", "a").write('{"path":"L2V0Yy9wYXNzd2Q=","size":1,"mtime":1}\n' + "x" * 1000000 + "\n"))
acts("C05", "replace the channel's socket", "EROFS|EPERM|EACCES|EBUSY", lambda: os.unlink("/.ctl/init.sock"))
acts("C06", "listen where the host would", "EROFS|EPERM|EACCES|EADDRINUSE", lambda: socket.socket(socket.AF_UNIX).bind("/.ctl/other.sock"))


def spoken(data):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(5)
    s.connect("/.ctl/init.sock")
    s.sendall(data)
    time.sleep(0.2)
    s.close()


def crowd(n):
    kept = []
    for _ in range(n):
        s = socket.socket(socket.AF_UNIX)
        s.setblocking(False)
        s.connect("/.ctl/init.sock")
        kept.append(s)
    return len(kept)


# Resources. Each ends inside, and the sandbox goes on.
acts("R01", "open very many files", r"done \d+", lambda: greedy(lambda: os.open("/dev/null", os.O_RDONLY)))
acts("R02", "make very many pipes", r"done \d+", lambda: greedy(os.pipe))
acts("R03", "raise the limit of open files without end", REFUSED + "|ValueError|done .*", lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 30, 1 << 30)))
acts("R04", "start with two megabytes of arguments in one", "ENAMETOOLONG|E2BIG|done .*", lambda: os.execv("/bin/true", ["true", "x" * (2 << 20)]))
acts("R05", "start with arguments of 64 MB", "ENAMETOOLONG|E2BIG|ENOMEM|EFAULT", lambda: os.execv("/bin/true", ["true"] + ["x" * 100000] * 640))
acts("R06", "start with an environment of 64 MB", "ENAMETOOLONG|E2BIG|ENOMEM|EFAULT", lambda: os.execve("/bin/true", ["true"], {f"V{i}": "x" * 100000 for i in range(640)}))
acts("R07", "make a name of 300 bytes", "ENAMETOOLONG", lambda: write("/workspace/" + "n" * 300, "x"))
acts("R08", "make a path of 5000 bytes", "ENAMETOOLONG", lambda: write("/workspace/" + "d/" * 2500, "x"))
acts("R09", "make a file of eight exabytes", "EFBIG|EINVAL|ENOSPC|done .*", lambda: os.truncate(os.open("/workspace/huge", os.O_CREAT | os.O_RDWR), (1 << 63) - 1))
acts("R10", "map a petabyte", "ENOMEM|EINVAL|MemoryError|ValueError", lambda: mmap.mmap(-1, 1 << 50).close())
acts("R11", "lock all memory", REFUSED + "|ENOMEM|EAGAIN|done .*", lambda: LIBC.mlockall(3))
acts("R12", "use huge pages", REFUSED + "|ENOMEM|done .*", lambda: mmap.mmap(-1, 2 << 20, flags=0x40022).close())
acts("R13", "nest directories 2000 deep", r"done .*|ENAMETOOLONG", lambda: nest(2000))
acts("R14", "watch very many files", r"done \d+", lambda: greedy(lambda: LIBC.inotify_add_watch(LIBC.inotify_init(), b"/tmp", 2) if LIBC.inotify_init() >= 0 else stop()))
acts("R15", "make very many timers", r"done \d+", lambda: greedy(lambda: os.timerfd_create(time.CLOCK_MONOTONIC) if hasattr(os, "timerfd_create") else stop()))
acts("R16", "wait on itself in circles", "ELOOP|EINVAL", lambda: circle())
acts("R17", "pass descriptors in circles", r"done .*|ETOOMANYREFS|EMFILE", lambda: passed(200))
acts("R18", "print a million small writes", r"done .*", lambda: [os.write(devnull, b"x") for _ in range(1000000)][-1])
acts("R19", "run at the highest priority", REFUSED + r"|done .*", lambda: os.nice(-20))
acts("R20", "schedule itself in real time", REFUSED + r"|done .*", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99)))

devnull = os.open("/dev/null", os.O_WRONLY)


def stop():
    raise OSError(errno.EMFILE, "")


def greedy(take, most=200000):
    """How many can be taken before it is refused."""
    kept = 0
    for _ in range(most):
        try:
            take()
        except OSError as e:
            if e.errno in (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EAGAIN, errno.ENOMEM):
                break
            raise
        kept += 1
    return kept


def nest(depth):
    os.chdir("/tmp")
    for i in range(depth):
        os.mkdir("n")
        os.chdir("n")
    return depth


def circle():
    a, b = select.epoll(), select.epoll()
    a.register(b.fileno())
    b.register(a.fileno())


def passed(n):
    a, b = socket.socketpair()
    for _ in range(n):
        socket.send_fds(a, [b"x"], [a.fileno(), b.fileno()])
        a2, b2 = socket.socketpair()
        socket.send_fds(a2, [b"x"], [a.fileno(), b.fileno()])
        a, b = a2, b2
    return n


# The network device.
acts("N01", "capture packets of the host: only its own device's are there", r"done .*|EPERM|EACCES", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)).close())
acts("N02", "talk to the kernel's audit", REFUSED + "|EPROTONOSUPPORT|EAFNOSUPPORT", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 9))
acts("N03", "use virtual machines' sockets", REFUSED + "|EAFNOSUPPORT|ESOCKTNOSUPPORT", lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).connect((2, 1)))
acts("N04", "use Bluetooth", REFUSED + "|EAFNOSUPPORT", lambda: socket.socket(31, socket.SOCK_RAW, 1))
acts("N05", "use the kernel's cryptography", REFUSED + "|EAFNOSUPPORT", lambda: socket.socket(38, socket.SOCK_SEQPACKET))
acts("N06", "use an express data path", REFUSED + "|EAFNOSUPPORT", lambda: socket.socket(44, socket.SOCK_RAW))
acts("N07", "use TIPC", REFUSED + "|EAFNOSUPPORT", lambda: socket.socket(30, socket.SOCK_RDM))
acts("N08", "reach an abstract socket of the host", "ECONNREFUSED|EPERM", lambda: socket.socket(socket.AF_UNIX).connect("\0/tmp/.X11-unix/X0"))


def attempt_of(f, limit=60):
    """The outcome of a case in a process of its own."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        os.setsid()
        signal.alarm(limit)
        try:
            said = f()
        except BaseException as e:
            said = f"{type(e).__name__}: {e}"
        os.write(w, said.encode()[:4000])
        os._exit(0)
    os.close(w)
    said = b""
    while part := os.read(r, 4096):
        said += part
    os.close(r)
    status = os.waitpid(pid, 0)[1]
    if said:
        return said.decode(errors="replace")
    return f"exit {os.waitstatus_to_exitcode(status)}"


if __name__ == "__main__":
    for ident, attempt, expected, f in CASES:
        outcome = attempt_of(f)
        print(json.dumps({"id": ident, "attempt": attempt, "expected": expected, "outcome": outcome, "held": re.fullmatch(expected, outcome) is not None}), flush=True)
