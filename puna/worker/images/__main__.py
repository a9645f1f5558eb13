"""`python -m puna.worker.images`: started by the daemon for the images of one request."""

from __future__ import annotations

from puna.worker.child import begin


def main() -> None:
    channel = begin("images")

    # Only now, so that signals during the slow imports are ignored, too.
    from puna.worker.images.worker import run

    run(channel)


if __name__ == "__main__":
    main()
