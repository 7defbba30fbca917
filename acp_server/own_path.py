"""Where imports are looked for when a module of ours is run with `python -m`.

Python then looks in the working directory first, and the server is started in projects of all
kinds: one that holds a `queue.py` or a `persistence/` must not come between us and our imports.
Import nothing here that is not built in: it would be looked for in that very directory.
"""

import sys


def leave_working_directory() -> None:
    """Take the working directory off the import path, and keep our own packages on it."""
    if not sys.flags.safe_path and sys.path:
        del sys.path[0]
    home = __file__.rpartition("/")[0].rpartition("/")[0]
    # Only a checkout that is not installed was found through the working directory alone.
    if home not in sys.path:
        sys.path.append(home)
