"""Runs in a cage and tries everything; what came of it goes to standard output as JSON, by name.

Arguments: what the test gives, as JSON; see test_cage.py.
"""

from __future__ import annotations

import array
import fcntl
import json
import mmap
import os
import platform
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from puna.worker.cage import CageRules, enter
from puna.worker.cage.program_rules import places_of, program_rules
from puna.worker.cage.system import prctl, syscall

Given = dict[str, Any]

# Numbers on x86_64 and aarch64.
SYSCALLS = {
    "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424), "pidfd_getfd": (438, 438),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "ptrace": (101, 117),
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "open_tree": (428, 428),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219),
    "io_uring_setup": (425, 425), "open_by_handle_at": (304, 265), "init_module": (175, 105),
    "kexec_load": (246, 104), "personality": (135, 92), "execveat": (322, 281), "openat2": (437, 437),
    "rt_sigqueueinfo": (129, 138), "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131),
    "socket": (41, 198), "clone3": (435, 435), "clone": (56, 220), "seccomp": (317, 277),
}  # fmt: skip
FAMILIES = ("AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK", "AF_PACKET", "AF_VSOCK")
COLUMN = 0 if platform.machine() == "x86_64" else 1
CLONE_NEWUSER = 0x10000000
F_SETOWN, F_SETSIG = 8, 10
TIOCSTI = 0x5412


def call(name: str, *arguments: int | bytes | None) -> int:
    return syscall(SYSCALLS[name][COLUMN], *arguments)


def files(given: Given) -> dict[str, Callable[[], object]]:
    secret, foreign, parent = Path(given["secret"]), Path(given["foreign"]), given["parent"]
    return {
        "read a file": secret.read_bytes,
        "list a directory": lambda: os.listdir(foreign),  # noqa: PTH208
        "open without following": lambda: os.open(secret, os.O_RDONLY | os.O_NOFOLLOW),
        "overwrite a file": lambda: secret.write_bytes(b"x"),
        "empty a file": lambda: os.open(secret, os.O_RDONLY | os.O_TRUNC),
        "make a file": lambda: (foreign / "new").write_bytes(b""),
        "make a directory": lambda: (foreign / "directory").mkdir(),
        "rename a file": lambda: secret.rename(foreign / "renamed"),
        "remove a file": lambda: (foreign / "victim").unlink(),
        "read the daemon's memory": lambda: Path(f"/proc/{parent}/mem").open("rb"),
        "read the daemon's environment": Path(f"/proc/{parent}/environ").read_bytes,
        "write the daemon's memory": lambda: Path(f"/proc/{parent}/mem").open("r+b"),
        "open a terminal": lambda: os.open(given["terminal"], os.O_RDWR),
        "import a module": lambda: __import__(given["module"]),
    }


def always_denied(given: Given) -> dict[str, Callable[[], object]]:
    secret, foreign = Path(given["secret"]), Path(given["foreign"])

    def inherited(name: str) -> socket.socket:
        return socket.socket(fileno=os.dup(given[name]))

    return {
        **{f"open {name}": lambda n=name: socket.socket(getattr(socket, n)) for name in FAMILIES},
        "make a pair of sockets": socket.socketpair,
        "connect a socket": lambda: inherited("unconnected").connect(tuple(given["address"])),
        "listen": lambda: inherited("unconnected").listen(),
        "send to an address": lambda: inherited("udp").sendto(b"x", tuple(given["address"])),
        "open a file by other calls": lambda: call("openat2", -100, os.fsencode(secret), bytes(24), 24),
        "change a mode": lambda: secret.chmod(0o777),
        "change an owner": lambda: os.chown(secret, 1, 1),
        "change a time": lambda: os.utime(secret, (0, 0)),
        "set an attribute": lambda: os.setxattr(secret, "user.x", b"x"),
        "truncate by name": lambda: os.truncate(secret, 0),
        "link": lambda: os.link(secret, foreign / "link"),
        "make a symbolic link": lambda: (foreign / "symlink").symlink_to(secret),
        "make a FIFO": lambda: os.mkfifo(foreign / "fifo"),
        "change the directory": lambda: os.chdir("/"),
        "change the root": lambda: os.chroot("/"),
        "open by handle": lambda: call("open_by_handle_at", -100, bytes(64), 0),
    }  # fmt: skip


def processes(given: Given) -> dict[str, Callable[[], object]]:
    parent = given["parent"]
    own = given["stream"]

    def own_signals() -> None:
        fcntl.fcntl(own, F_SETOWN, parent)

    return {
        "fork": os.fork,
        "spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
        "clone a process": lambda: call("clone", signal.SIGCHLD, None, None, None, 0),
        "clone a process anew": lambda: call("clone3", bytes(88), 88),
        "execute": lambda: os.execv("/bin/true", ["true"]),
        "execute a descriptor": lambda: call("execveat", 0, b"", None, None, 0x1000),
        "ask for a signal's way": lambda: os.kill(parent, 0),
        "kill": lambda: os.kill(parent, signal.SIGTERM),
        "kill everybody": lambda: os.kill(-1, signal.SIGTERM),
        "kill the group": lambda: os.killpg(os.getpgid(0), 0),
        "kill a thread": lambda: call("tgkill", parent, parent, signal.SIGTERM),
        "kill by thread": lambda: call("tkill", parent, signal.SIGTERM),
        "queue a signal": lambda: call("rt_sigqueueinfo", parent, signal.SIGTERM, bytes(128)),
        "open a process": lambda: os.pidfd_open(parent),
        "signal a process": lambda: call("pidfd_send_signal", given["pidfd"], signal.SIGTERM, None, 0),
        "take a descriptor": lambda: call("pidfd_getfd", given["pidfd"], 2, 0),
        "have signals sent": own_signals,
        "choose the signal": lambda: fcntl.fcntl(own, F_SETSIG, signal.SIGTERM),
        "trace": lambda: call("ptrace", 16, parent, None, None),
        "be traced": lambda: call("ptrace", 0, 0, None, None),
        "read memory": lambda: call("process_vm_readv", parent, bytes(16), 1, bytes(16), 1, 0),
        "write memory": lambda: call("process_vm_writev", parent, bytes(16), 1, bytes(16), 1, 0),
        "limit another": lambda: resource.prlimit(parent, resource.RLIMIT_NOFILE, (10, 10)),
        "raise a limit": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10)),
        "slow another": lambda: os.setpriority(os.PRIO_PROCESS, parent, 19),
        "bind another": lambda: os.sched_setaffinity(parent, {0}),
        "type into a terminal": lambda: fcntl.ioctl(given["terminal_fd"], TIOCSTI, b"x"),
    }


def kernel(_: Given) -> dict[str, Callable[[], object]]:
    return {
        "new user namespace": lambda: call("unshare", CLONE_NEWUSER),
        "clone into a namespace": lambda: call("clone", CLONE_NEWUSER | signal.SIGCHLD, None, None, None, 0),
        "enter a namespace": lambda: call("setns", 0, 0),
        "mount": lambda: call("mount", b"none", b"/mnt", b"tmpfs", 0, None),
        "clone a mount": lambda: call("open_tree", -100, b"/", 1),
        "bpf": lambda: call("bpf", 0, bytes(128), 128),
        "perf": lambda: call("perf_event_open", bytes(128), 0, -1, -1, 0),
        "userfaultfd": lambda: call("userfaultfd", 1),
        "keys": lambda: call("keyctl", 0, -3, 0),
        "io_uring": lambda: call("io_uring_setup", 1, bytes(120)),
        "load a module": lambda: call("init_module", b"", 0, b""),
        "load a kernel": lambda: call("kexec_load", 0, 0, None, 0),
        "personality": lambda: call("personality", 0x0040000),
        "another filter": lambda: call("seccomp", 1, 0, bytes(16)),
        "no longer die with the daemon": lambda: prctl(1, 0),
        "memory to execute": lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC),
        "capabilities": lambda: os.setuid(1),
    }


def features(given: Given) -> dict[str, Callable[[], object]]:
    def thread() -> None:
        done = threading.Event()
        worker = threading.Thread(target=done.set)
        worker.start()
        worker.join()
        assert done.is_set()

    def memory() -> None:
        with mmap.mmap(-1, 1 << 20) as pages:
            pages[:4] = b"here"
            pages.resize(2 << 20)
            pages.madvise(mmap.MADV_DONTNEED)

    def channel() -> None:
        with socket.socket(fileno=os.dup(given["stream"])) as stream:
            memory = os.memfd_create("x", os.MFD_ALLOW_SEALING)
            fcntl.fcntl(memory, 1033, 1)
            stream.sendmsg([b"hello"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [memory]))])
            stream.settimeout(5)
            assert stream.recv(5) == b"again"

    def own_signal() -> None:
        seen = []
        signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
        signal.raise_signal(signal.SIGUSR1)
        assert seen

    def limits() -> None:
        resource.getrlimit(resource.RLIMIT_NOFILE)

    both = {
        **{
            "thread": thread,
            "memory": memory,
            "channel": channel,
            "own signal": own_signal,
            "limits": limits,
        },
        "own processors": lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)),
        **{"time": time.localtime, "random": lambda: os.urandom(8)},
    }
    if not given["readable"]:
        return both
    directory = Path(given["writable"][0])

    def keep() -> None:
        (directory / "sub").mkdir()
        (directory / "sub" / "new").write_bytes(b"x")
        (directory / "sub" / "new").rename(directory / "sub" / "name")
        with (directory / "sub" / "name").open("r+b") as file:
            os.utime(file.fileno(), (1, 1))
            os.truncate(file.fileno(), 0)
            os.fsync(file.fileno())
        assert os.listdir(directory) == ["sub"]  # noqa: PTH208
        (directory / "sub" / "name").unlink()
        (directory / "sub").rmdir()

    return both | {"keep": keep, "read": Path(given["readable"][0]).read_text}


def main() -> None:
    given = json.loads(sys.argv[1])
    level = enter(_rules(given))
    outcomes: dict[str, dict[str, Any]] = {"level": {"landlock": level.landlock, "is_low": level.is_low}}
    for group in (features, always_denied, processes, kernel, files):
        outcomes[group.__name__] = {name: _outcome(attempt) for name, attempt in group(given).items()}
    print(json.dumps(outcomes), flush=True)


def _rules(given: Given) -> CageRules:
    writable = tuple(map(Path, given["writable"]))
    if given["is_server"]:
        return program_rules(places_of(Path("/bin/bash")), *writable)
    return CageRules(tuple(map(Path, given["readable"])), writable, given["newest_landlock"])


def _outcome(attempt: Callable[[], object]) -> str:
    """Empty if it succeeded."""
    try:
        attempt()
    except Exception as error:
        return repr(error) or "error"
    return ""


if __name__ == "__main__":
    main()
