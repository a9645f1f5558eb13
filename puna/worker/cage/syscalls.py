"""The system calls of caged processes, and their numbers.

What is not listed does not exist for them. The list holds what Python, the C library, NumPy and the native
core use once everything is imported, and what other versions of them use instead: a list of what is denied
would have to grow with every kernel.
"""

from __future__ import annotations

import platform
import struct
from typing import NamedTuple


class Condition(NamedTuple):
    """Of an argument: its lower 32 bits, as far as the mask has them, are one of the values."""

    argument: int
    mask: int
    values: tuple[int, ...]
    is_wide: bool = False
    """The upper 32 bits matter, and are 0."""
    or_masked: tuple[int, tuple[int, ...]] = (0, ())
    """Or else: another mask, and what the argument is then one of."""


class Machine(NamedTuple):
    audit_arch: int
    column: int
    """In the table of numbers."""
    seccomp: int
    """The number of seccomp(2)."""
    capget: int
    capset: int


_MACHINES = {
    "x86_64": Machine(0xC000003E, 0, 317, 125, 126),
    "aarch64": Machine(0xC00000B7, 1, 277, 90, 91),
}


def this_machine() -> Machine | None:
    """None: the numbers of its system calls are not known here."""
    return _MACHINES.get(platform.machine()) if struct.calcsize("P") == 8 else None


# Numbers on x86_64 (arch/x86/entry/syscalls/syscall_64.tbl), aarch64 (include/uapi/asm-generic/unistd.h).
Table = dict[str, tuple[int | None, int | None]]

ALWAYS: Table = {
    # memory
    "mmap": (9, 222),
    "munmap": (11, 215),
    "mremap": (25, 216),
    "mprotect": (10, 226),
    "madvise": (28, 233),
    "brk": (12, 214),
    "msync": (26, 227),
    "mincore": (27, 232),
    "membarrier": (324, 283),
    "get_mempolicy": (239, 236),
    "memfd_create": (319, 279),
    # threads
    "clone": (56, 220),
    "futex": (202, 98),
    "futex_waitv": (449, 449),
    "set_robust_list": (273, 99),
    "rseq": (334, 293),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "sched_setaffinity": (203, 122),
    "getcpu": (309, 168),
    "gettid": (186, 178),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "restart_syscall": (219, 128),
    "tgkill": (234, 131),
    "prctl": (157, 167),
    # signals
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137),
    "sigaltstack": (131, 132),
    # time
    "setitimer": (38, 103),
    "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "times": (100, 153),
    # the process itself
    "getpid": (39, 172),
    "getppid": (110, 173),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "getrusage": (98, 165),
    "getrlimit": (97, 163),
    "prlimit64": (302, 261),
    "sysinfo": (99, 179),
    "uname": (63, 160),
    "getrandom": (318, 278),
    # what is open
    "read": (0, 63),
    "readv": (19, 65),
    "pread64": (17, 67),
    "preadv": (295, 69),
    "preadv2": (327, 286),
    "write": (1, 64),
    "writev": (20, 66),
    "pwrite64": (18, 68),
    "pwritev": (296, 70),
    "pwritev2": (328, 287),
    "lseek": (8, 62),
    "close": (3, 57),
    "close_range": (436, 436),
    "fstat": (5, 80),
    "newfstatat": (262, 79),  # also of names: that cannot be told apart
    "statx": (332, 291),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "dup": (32, 23),
    "poll": (7, None),
    "ppoll": (271, 73),
    "select": (23, None),
    "pselect6": (270, 72),
    "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21),
    "epoll_wait": (232, None),
    "epoll_pwait": (281, 22),
    "fadvise64": (221, 223),
    "ftruncate": (77, 46),
    "fallocate": (285, 47),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "flock": (73, 32),
    "fstatfs": (138, 44),
    "utimensat": (280, 88),
    # sockets, which are inherited and connected
    "sendto": (44, 206),
    "sendmsg": (46, 211),
    "recvfrom": (45, 207),
    "recvmsg": (47, 212),
    "shutdown": (48, 210),
    "getsockopt": (55, 209),
    "getsockname": (51, 204),
    "getpeername": (52, 205),
}

READING: Table = {
    "open": (2, None),
    "openat": (257, 56),
    "stat": (4, None),
    "lstat": (6, None),
    "access": (21, None),
    "faccessat": (269, 48),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "getdents64": (217, 61),
    "getcwd": (79, 17),
    "statfs": (137, 43),
}

WRITING: Table = {
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "rmdir": (84, None),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
}

_SOCKETS: Table = {
    "socket": (41, 198),
    "setsockopt": (54, 208),
    "socketpair": (53, 199),
}

CONNECTING: Table = _SOCKETS | {"connect": (42, 203)}

LISTENING: Table = _SOCKETS | {
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
}

PROGRAM: Table = {
    # becoming one, with its libraries
    "execve": (59, 221),
    "arch_prctl": (158, None),
    "set_tid_address": (218, 96),
    # what others than ours use: OpenMP, drivers of GPUs, llama.cpp's server
    "pipe": (22, None),
    "pipe2": (293, 59),
    "eventfd2": (290, 19),
    "dup2": (33, None),
    "dup3": (292, 24),
    "sched_setscheduler": (144, 119),
    "sched_getscheduler": (145, 120),
    "sched_getparam": (143, 121),
    "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126),
    "setpriority": (141, 140),
    "getpriority": (140, 141),
    "mlock": (149, 228),
    "munlock": (150, 229),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
    "readahead": (187, 213),
}
"""For processes that become another program."""

_ALL_BITS = 0xFFFFFFFF
_PROT_EXEC = 4
_CLONE_THREAD = 0x00010000
_NEW_NAMESPACES = 0x7E020080  # CLONE_NEW*
_O_CHANGES = 0o20001103  # O_ACCMODE, O_CREAT, O_TRUNC, O_TMPFILE

_FCNTL_COMMANDS = (
    *range(8),  # duplicating, flags, locks: not who gets signals (F_SETOWN, F_SETSIG), not leases
    *(1030, 1031, 1032, 1033, 1034),  # F_DUPFD_CLOEXEC, sizes of pipes, seals
    *(36, 37, 38),  # locks of open files
)
_IOCTLS = (
    *(0x5401, 0x802C542A, 0x5413),  # TCGETS, TCGETS2, TIOCGWINSZ: never TIOCSTI, which types into a terminal
    *(0x541B, 0x5421, 0x5450, 0x5451),  # FIONREAD, FIONBIO, FIONCLEX, FIOCLEX
    0x4020940D,  # FICLONERANGE, between files that are open
)
_IOCTL_KIND = 0xFF00
_GPU_KINDS = (
    *(ord("d") << 8, ord("K") << 8, ord("b") << 8, ord(">") << 8),  # DRM, AMD's kfd, dma-buf, sync_file
    *(ord("F") << 8, ord("m") << 8, 0),  # NVIDIA's, its modeset's and its unified memory's
)
_AF_UNIX = 1
_SOCK_STREAM, _SOCK_SEQPACKET = 1, 5
_SOCKET_TYPES = 0xF  # beside them: SOCK_NONBLOCK, SOCK_CLOEXEC
_PRCTL_OPTIONS = (15, 16, 0x53564D41)  # PR_SET_NAME, PR_GET_NAME, PR_SET_VMA

_UNIX_CONNECTED = (
    Condition(0, _ALL_BITS, (_AF_UNIX,)),
    Condition(1, _SOCKET_TYPES, (_SOCK_STREAM, _SOCK_SEQPACKET)),
)
"""Others send to any address by sendmsg(2) and need not be connected. CUDA listens on the second type."""

READ_ONLY = {
    "open": (Condition(1, _O_CHANGES, (0,)),),
    "openat": (Condition(2, _O_CHANGES, (0,)),),
}

CONTROLLING = {"ioctl": (Condition(1, _ALL_BITS, _IOCTLS, or_masked=(_IOCTL_KIND, _GPU_KINDS)),)}

OF_OURS = ("mmap", "mprotect", "sched_setaffinity")
"""Whose conditions another program need not meet."""


def conditions(pid: int) -> dict[str, tuple[Condition, ...]]:
    """On which some are allowed to the process `pid`."""
    return {
        "mmap": (Condition(2, _PROT_EXEC, (0,)),),
        "mprotect": (Condition(2, _PROT_EXEC, (0,)),),
        "clone": (Condition(0, _CLONE_THREAD | _NEW_NAMESPACES, (_CLONE_THREAD,)),),
        "sched_setaffinity": (Condition(0, _ALL_BITS, (0,)),),  # of the thread that asks
        "tgkill": (Condition(0, _ALL_BITS, (pid,)),),  # raise() and abort()
        "socket": _UNIX_CONNECTED,
        "socketpair": _UNIX_CONNECTED,
        "prctl": (Condition(0, _ALL_BITS, _PRCTL_OPTIONS),),
        "prlimit64": (Condition(0, _ALL_BITS, (0, pid)), Condition(2, _ALL_BITS, (0,), True)),  # reading it
        "fcntl": (Condition(1, _ALL_BITS, _FCNTL_COMMANDS),),
        "ioctl": (Condition(1, _ALL_BITS, _IOCTLS),),
        "utimensat": (Condition(1, _ALL_BITS, (0,), True),),  # of what is open, not of a name
        "sendto": (Condition(4, _ALL_BITS, (0,), True),),  # to where it is connected
    }
