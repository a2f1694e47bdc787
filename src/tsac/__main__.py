"""``python -m tsac``: the command line."""

from tsac.cli import main

main()
