"""The command line: a thin skin over the Python API. One module a command."""
