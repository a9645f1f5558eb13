"""Where the command line starts, before anything is imported that the current directory could replace.

So this module, and `puna` itself, import nothing but what Python has imported when it started.
"""

import os
import sys

_INTERRUPTED = 130
"""As of a program that the signal ends."""


def main() -> None:
    forget_current_directory()
    import signal

    try:
        from puna.cli.main import main as run

        run()
    except KeyboardInterrupt:  # while modules are imported
        sys.exit(_INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to say


def forget_current_directory() -> None:
    """Takes the current directory off sys.path, unless PYTHONPATH names it in full.

    `python -m` puts it there, and so does an empty or relative entry of PYTHONPATH.
    """
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    # pathlib would have to be imported.
    trusted = {entry for entry in given if os.path.isabs(entry)}  # noqa: PTH117
    relative = {"", *given} - trusted
    try:
        untrusted = {*relative, *(os.path.abspath(entry) for entry in relative)}  # noqa: PTH100
    except FileNotFoundError:  # the directory was removed: there is nothing in it to run
        return
    # What comes before the standard library is there by PYTHONPATH or by the way of starting.
    library = os.path.dirname(os.__file__)  # noqa: PTH120
    end = sys.path.index(library) if library in sys.path else 0
    sys.path[:end] = [entry for entry in sys.path[:end] if entry in trusted or entry not in untrusted]
