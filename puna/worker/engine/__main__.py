"""`python -m puna.worker.engine`: started by the daemon, with one end of a channel."""

from __future__ import annotations

import logging

from puna.worker.child import begin


def main() -> int:
    channel = begin("worker")

    # Only now, so that signals during the slow imports are ignored, too.
    from puna._native import NativeError, catch_bus_errors
    from puna.backends import open_device, prepare_devices
    from puna.engine import EngineCore
    from puna.engine.grammars.vocabulary import llguidance
    from puna.models.tracing import import_architectures
    from puna.worker.cage import enter
    from puna.worker.cage.engine_rules import engine_rules
    from puna.worker.calls import CallServer
    from puna.worker.engine.messages import CROSSING, Ready, Start, ToWorker
    from puna.worker.engine.server import EngineServer

    import_architectures()
    prepare_devices()
    if isinstance(library := llguidance(), NativeError):
        logging.error("no reply can be held to a grammar: %s", library)
    catch_bus_errors()
    calls = CallServer(channel, ToWorker, CROSSING)
    asked = calls.read()
    if asked is None:  # the daemon has ended
        return 0
    if not isinstance(asked.message, Start):
        logging.error("the first message does not say what to start with")
        return 1
    settings = asked.message.settings
    cage = enter(engine_rules(settings.engine.kv_dir, settings.engine.sessions_dir))
    try:
        backend = open_device("cpu", settings.num_threads, settings.kv_type)
        engine = EngineCore(backend, settings.engine)
    except Exception as error:
        calls.fail(asked.call, error)
        raise
    budget = engine.memory.budget
    ready = Ready(
        kv_limit_bytes=budget.kv_limit_bytes, memory_limit_bytes=budget.memory_limit_bytes, cage=cage
    )
    calls.answer(asked.call, ready)
    try:
        EngineServer(engine, calls).run()
    finally:
        backend.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
