"""`python -m puna.worker.text`: the zygote, started by the daemon with one end of a channel."""

from __future__ import annotations

import logging
import signal
import sys


def main() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM):  # they may reach the whole group; the daemon handles them
        signal.signal(ignored, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format="text process: %(levelname)s %(message)s")

    # Only now, so that a Ctrl-C during the slow imports is ignored, too.
    from puna.worker.calls import inherited_channel
    from puna.worker.text.zygote import Zygote

    stream, descriptors = map(int, sys.argv[1:])
    Zygote(inherited_channel(stream, descriptors)).run()


if __name__ == "__main__":
    main()
