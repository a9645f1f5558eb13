"""`python -m puna.worker.convert`: started by the daemon for one conversion."""

from __future__ import annotations

from puna.worker.child import begin


def main() -> None:
    channel = begin("conversion")

    # Only now, so that signals during the slow imports are ignored, too.
    from puna._native import catch_bus_errors
    from puna.worker.convert.worker import run

    catch_bus_errors()
    run(channel)


if __name__ == "__main__":
    main()
