"""`python -m puna.cli`: the command line without the installed script."""

from puna.cli.main import main

main()
