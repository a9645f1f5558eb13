"""`python -m puna.worker.llamacpp`: started by the daemon for one model, with one end of a channel."""

from __future__ import annotations

import asyncio
import logging

from puna.worker.child import begin


def main() -> int:
    channel = begin("second engine")

    # Only now, so that signals during the slow imports are ignored, too.
    from puna._native import catch_bus_errors
    from puna.backends.cpu.cores import usable_cores
    from puna.worker.cage import enter
    from puna.worker.calls import CallServer
    from puna.worker.engine.messages import Ready
    from puna.worker.llamacpp.client.http import ServerClient
    from puna.worker.llamacpp.hosted import HostedServer
    from puna.worker.llamacpp.messages import CROSSING, StartServer, ToServerWorker
    from puna.worker.llamacpp.rules import WORKER_RULES
    from puna.worker.llamacpp.server import LlamaServer

    catch_bus_errors()
    calls = CallServer(channel, ToServerWorker, CROSSING)
    asked = calls.read()
    if asked is None:  # the daemon has ended
        return 0
    if not isinstance(asked.message, StartServer):
        logging.error("the first message does not say what to start with")
        return 1
    settings = asked.message.settings
    if settings.debug:
        logging.getLogger("puna").setLevel(logging.DEBUG)
    try:
        hosted = HostedServer.start(settings)
        num_threads = settings.num_threads or usable_cores()
        runner = asyncio.Runner()  # whose event loop has sockets
        runner.run(ServerClient.prepare())
        cage = enter(WORKER_RULES)
    except Exception as error:
        calls.fail(asked.call, error)
        raise
    # It leases what it takes of the daemon's memory, and has no limits of its own.
    calls.answer(asked.call, Ready(kv_limit_bytes=0, memory_limit_bytes=0, cage=cage))
    with runner:
        return runner.run(LlamaServer(settings, num_threads, hosted, calls).run())


if __name__ == "__main__":
    raise SystemExit(main())
