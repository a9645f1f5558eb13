"""`python -m puna.cli`: the command line without the installed script."""

from puna.cli.entry import main

main()
