"""`python -m puna.worker.text`: the zygote."""

from __future__ import annotations

from puna.worker.child import begin


def main() -> None:
    channel = begin("text process")

    # Only now, so that a Ctrl-C during the slow imports is ignored, too.
    from puna.worker.text.zygote import Zygote

    Zygote(channel).run()


if __name__ == "__main__":
    main()
