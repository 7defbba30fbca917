"""`python -m acp_server`: the same as the command `acp-server`."""

import sys

from acp_server.own_path import leave_working_directory

if __name__ == "__main__":
    leave_working_directory()
    from acp_server.cli import main

    sys.exit(main())
