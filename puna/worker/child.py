"""How every child of the daemon begins."""

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import signal
import sys
from pathlib import Path

from puna.worker.calls import Channel, close_all, inherited_channel

_PR_SET_PDEATHSIG = 1


def begin(name: str) -> Channel:
    """Takes over the channel that the command line names. name: of this kind of child, for its log.

    Signals to the whole group, Ctrl-C or a service manager's, are left to the daemon, which ends its children
    when its requests are done. The child ends with the daemon, however that ends.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    arguments = _parse(sys.argv[1:])
    close_all_but([0, 1, 2, *arguments.channel])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != arguments.parent:  # it has ended before it could be asked for
        sys.exit(1)
    logging.basicConfig(level=logging.INFO, format=f"{name}: %(levelname)s %(message)s")
    return inherited_channel(*arguments.channel)


def close_all_but(kept: list[int]) -> None:
    """Whoever started the daemon may have left it files and sockets, and not every event loop keeps those
    from children.
    """
    opened = [int(path.name) for path in Path("/dev/fd").iterdir()]
    close_all([number for number in opened if number not in kept])


def _parse(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--channel", type=int, nargs=2, required=True, help="two sockets, inherited")
    parser.add_argument("--parent", type=int, required=True, help="process that the child ends with")
    return parser.parse_args(given)
