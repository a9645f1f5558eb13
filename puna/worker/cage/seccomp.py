"""The seccomp filter of a caged process: a program in classic BPF that looks at each of its system calls.

Formats: Linux's Documentation/userspace-api/seccomp_filter.rst, include/uapi/linux/{seccomp,filter}.h.
"""

from __future__ import annotations

import ctypes
import errno
import struct

from puna.worker.cage.rules import CageRules
from puna.worker.cage.syscalls import (
    ALWAYS,
    CONNECTING,
    CONTROLLING,
    LISTENING,
    OF_OURS,
    PROGRAM,
    READ_ONLY,
    READING,
    WRITING,
    Condition,
    Machine,
    conditions,
)
from puna.worker.cage.system import syscall

_SET_MODE_FILTER = 1
_ALL_THREADS = 1  # SECCOMP_FILTER_FLAG_TSYNC

_LOAD, _AND, _JUMP_IF_EQUAL, _JUMP_IF_NOT_BELOW, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data

_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_REFUSE = 0x00050000 | errno.EPERM
_UNKNOWN = 0x00050000 | errno.ENOSYS
"""As an older kernel answers: C libraries then do without, or with something older (clone for clone3)."""
_X32 = 0x40000000

_OPTIONAL = READING | WRITING | PROGRAM | CONNECTING | LISTENING


def restrict(rules: CageRules, machine: Machine, pid: int) -> None:
    """Holds all threads of this process, whose id is `pid`: it must have given up new privileges.

    Raises OSError.
    """
    program = _program(rules, machine, pid)
    code = ctypes.create_string_buffer(program, len(program))
    given = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    syscall(machine.seccomp, _SET_MODE_FILTER, _ALL_THREADS, given)


def _program(rules: CageRules, machine: Machine, pid: int) -> bytes:
    allowed, required = dict(ALWAYS), conditions(pid)
    if rules.opens_files:
        allowed |= READING
    if rules.writable:
        allowed |= WRITING
    elif not rules.devices:
        required |= READ_ONLY
    if rules.executable:
        allowed |= PROGRAM
        required = {name: needed for name, needed in required.items() if name not in OF_OURS}
    if rules.controls_devices:
        required |= CONTROLLING
    if rules.connects:
        allowed |= CONNECTING
    if rules.listens_in:
        allowed |= LISTENING
    refused = _OPTIONAL.keys() - allowed.keys()
    program = [
        # Another architecture's numbers mean other calls: nothing in the process makes them.
        _load(_ARCH),
        _jump(_JUMP_IF_EQUAL, machine.audit_arch, 1, 0),
        _return(_KILL),
        _load(_NUMBER),
        _jump(_JUMP_IF_NOT_BELOW, _X32, 0, 1),
        _return(_KILL),
    ]
    for name, numbers in (ALWAYS | _OPTIONAL).items():
        if (number := numbers[machine.column]) is not None:
            block = [_return(_REFUSE)] if name in refused else _allow_if(required.get(name, ()))
            program += [_jump(_JUMP_IF_EQUAL, number, 0, len(block)), *block]
    return b"".join([*program, _return(_UNKNOWN)])


def _allow_if(required: tuple[Condition, ...]) -> list[bytes]:
    block: list[bytes] = []
    for condition in required:
        offset = _ARGUMENTS + 8 * condition.argument  # both machines are little-endian
        if condition.is_wide:
            block += [_load(offset + 4), _jump(_JUMP_IF_EQUAL, 0, 1, 0), _return(_REFUSE)]
        block += _refuse_unless(offset, (condition.mask, condition.values), condition.or_masked)
    return [*block, _return(_ALLOW)]


def _refuse_unless(offset: int, *masked: tuple[int, tuple[int, ...]]) -> list[bytes]:
    """masked: the argument there, as far as the mask has it, is one of the values of any."""
    block = [_return(_REFUSE)]
    for mask, values in reversed(masked):
        for value in values:
            block = [_jump(_JUMP_IF_EQUAL, value, len(block), 0), *block]
        if values:
            block = [_load(offset), _instruction(_AND, 0, 0, mask), *block]
    return block


def _load(offset: int) -> bytes:
    return _instruction(_LOAD, 0, 0, offset)


def _return(action: int) -> bytes:
    return _instruction(_RETURN, 0, 0, action)


def _jump(code: int, value: int, if_true: int, if_false: int) -> bytes:
    return _instruction(code, if_true, if_false, value)


def _instruction(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
