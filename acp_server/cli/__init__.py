"""The command line: parses, then hands over. Imports only what the chosen command needs."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from acp_server.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "acp-server"
USAGE_ERROR = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    if sys.platform == "win32":
        print(f"{PROGRAM}: Windows is not supported; use WSL", file=sys.stderr)  # noqa: T201 - the one answer there
        return USAGE_ERROR
    arguments = sys.argv[1:] if argv is None else list(argv)
    if not arguments or arguments[0] not in ("serve", "demo", "-h", "--help", "--version"):
        # `acp-server --agent X` is what editors have in their configuration.
        arguments.insert(0, "serve")
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except UsageError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)  # noqa: T201 - a command line speaks on stderr
        return USAGE_ERROR


class UsageError(Exception):
    """A command line that cannot be carried out; the message says why."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="Durable agent sessions over the Agent Client Protocol."
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = parser.add_subparsers(required=True)
    _add_serve(commands.add_parser("serve", help="serve a client on stdin and stdout (default)"))
    _add_demo(commands.add_parser("demo", help="play a talk with the server and show it"))
    return parser


def _add_serve(parser: argparse.ArgumentParser) -> None:
    environment = os.environ
    parser.add_argument(
        "--store",
        default=environment.get("ACP_SERVER_STORE"),
        metavar="KIND:PATH",
        help="where sessions are kept: jsonl:PATH or memory: (default: the user's data directory)",
    )
    parser.add_argument(
        "--agent",
        default=environment.get("ACP_SERVER_AGENT", "demo"),
        metavar="NAME",
        help="demo, script:FILE, module:attribute or file.py:attribute (default: %(default)s)",
    )
    parser.add_argument(
        "--log-level",
        choices=["debug", "info", "warning", "error"],
        help="log to stderr (default: nothing is logged there)",
    )
    parser.add_argument("--log-file", type=Path, help="log to a file, at --log-level or info")
    parser.set_defaults(run=_run_serve)


def _add_demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--frames", action="store_true", help="show the frames too")
    parser.set_defaults(run=_run_demo)


def _run_serve(options: argparse.Namespace) -> int:
    import anyio  # noqa: PLC0415 - not for --help

    from acp_server.agents.errors import AgentsError  # noqa: PLC0415 - as above
    from acp_server.agents.loading import load_agent  # noqa: PLC0415 - as above
    from acp_server.app import ServerConfig, serve_stdio  # noqa: PLC0415 - as above
    from acp_server.transport.stdio import StdioTransport  # noqa: PLC0415 - as above

    if sys.stdin.isatty():
        hint = f"{PROGRAM}: speaking ACP on stdin and stdout; an editor starts this command"
        print(hint, file=sys.stderr)  # noqa: T201 - Z25: one hint for who runs it by hand
    _set_up_logging(options.log_level, options.log_file)
    # Before the agent's module is imported: what it prints must not touch the wire.
    transport = StdioTransport.open()
    try:
        agent = load_agent(options.agent)
    except AgentsError as error:
        raise UsageError(str(error)) from error
    store = options.store or f"jsonl:{_default_store()}"
    return anyio.run(serve_stdio, ServerConfig(agent=agent, store=store), transport)


def _run_demo(options: argparse.Namespace) -> int:
    import anyio  # noqa: PLC0415 - not for --help

    from acp_server.cli.demo import play  # noqa: PLC0415 - as above

    return anyio.run(play, options.frames)


def _set_up_logging(level: str | None, file: Path | None) -> None:
    """Log where asked and nowhere else: some editors show every byte of stderr as an error."""
    root = logging.getLogger()
    if file is not None:
        root.addHandler(logging.FileHandler(file, encoding="utf-8"))
    if level is not None:
        root.addHandler(logging.StreamHandler())
    if not root.handlers:
        root.addHandler(logging.NullHandler())
    form = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    for handler in root.handlers:
        handler.setFormatter(form)
    root.setLevel((level or "info").upper())


def _default_store() -> str:
    import platformdirs  # noqa: PLC0415 - only without --store

    return platformdirs.user_data_dir("acp-session-server", appauthor=False)
