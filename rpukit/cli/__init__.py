"""The command line, ``python -m rpukit``: one file a command or two."""
