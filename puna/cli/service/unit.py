"""The unit file of the service: as little as the daemon needs, and all that the cages of its children need.

MemoryDenyWriteExecute is left out: libraries between languages make small pieces of code as they run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

STATE_DIRECTORY = Path("/var/lib/puna")

_COMMON = """\
[Unit]
Description=puna, a local server of large language models
{after}
[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
Environment=PUNA_DRAIN=60s
Environment=PUNA_ACCESS_LOG=true
# Only the daemon is asked to end: its children are needed until the last reply is finished.
KillMode=mixed
TimeoutStopSec=90s
Restart=on-failure
RestartSec=2s
LimitNOFILE=65536
UMask=0077

NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
SystemCallArchitectures=native
SystemCallFilter=@system-service mincore
SystemCallFilter=seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self
SystemCallErrorNumber=EPERM
"""

_SYSTEM = """\
# A user that exists while the service runs; what it keeps is in StateDirectory.
DynamicUser=yes
StateDirectory=puna
StateDirectoryMode=0700
Environment=HOME={state}
WorkingDirectory={state}
ProtectSystem=strict
ProtectHome={protect_home}
PrivateTmp=yes
PrivateDevices=yes
ProtectClock=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectControlGroups=yes
ProtectProc=invisible
RestrictNamespaces=yes
RemoveIPC=yes
CapabilityBoundingSet=
AmbientCapabilities=

[Install]
WantedBy=multi-user.target
"""

_USER = """\

[Install]
WantedBy=default.target
"""


@dataclass(frozen=True, slots=True)
class UnitOptions:
    """command: absolute words that start the daemon; environment: further settings of it."""

    command: Sequence[str]
    environment: Sequence[str] = ()
    is_system: bool = False


def unit_text(options: UnitOptions) -> str:
    """The whole file. A user's unit has no rules that need a mount namespace: unprivileged users often
    cannot make one.
    """
    after = "After=network-online.target\nWants=network-online.target\n" if options.is_system else ""
    # In a command `$` means something, too.
    command = " ".join(_quoted(word).replace("$", "$$") for word in options.command)
    text = _COMMON.format(after=after, command=command)
    given = "".join(f"Environment={_quoted(variable)}\n" for variable in options.environment)
    text = text.replace("# Only the daemon", f"{given}# Only the daemon", 1)
    if not options.is_system:
        return text + _USER
    # A program in a home directory must be readable there.
    in_home = options.command[0].startswith(("/home/", "/root/"))
    return text + _SYSTEM.format(state=STATE_DIRECTORY, protect_home="read-only" if in_home else "yes")


def _quoted(word: str) -> str:
    """As systemd reads words; `%` means something to it."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{escaped}"' if re.search(r"[\s\"'\\]", word) else escaped
