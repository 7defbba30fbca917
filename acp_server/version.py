"""The version, in the one place that the build, the command line and `initialize` read.

A constant: looking it up in the installed metadata costs more than answering `initialize`.
"""

__version__ = "0.1.0.dev0"
