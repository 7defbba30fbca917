"""`python -m acp_server`: the same as the command `acp-server`."""

import sys

from acp_server.cli import main

if __name__ == "__main__":
    sys.exit(main())
