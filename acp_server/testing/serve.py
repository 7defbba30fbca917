"""`python -m acp_server.testing.serve`: the server with a stepping clock and counting ids.

Rule: clock-and-ids-are-injected.

The same composition root as `acp-server serve`, so that a scenario runs in a real subprocess and
still gives the same bytes each time. `--series N` keeps ids and times of a restarted server apart.
"""

from __future__ import annotations

import sys

from acp_server.own_path import leave_working_directory

if __name__ == "__main__":
    leave_working_directory()

import argparse

import anyio

from acp_server.app import ServerConfig, serve_stdio
from acp_server.builtin_agents.loading import load_agent
from acp_server.exit_watch import ExitWatch
from acp_server.testing.client import CountedIds, clock_of_series
from acp_server.transport.stdio import StdioTransport


def main() -> int:
    """Serve and return the exit code."""
    parser = argparse.ArgumentParser(prog="acp_server.testing.serve")
    parser.add_argument("--store", required=True)
    parser.add_argument("--agent", default="demo")
    parser.add_argument("--series", type=int, default=0)
    options = parser.parse_args()
    transport = StdioTransport.open()
    watch = ExitWatch.start(transport.input_fd)
    config = ServerConfig(
        agent=load_agent(options.agent),
        store=options.store,
        clock=clock_of_series(options.series),
        ids=CountedIds(options.series),
    )
    return anyio.run(serve_stdio, config, transport, watch)


if __name__ == "__main__":
    sys.exit(main())
