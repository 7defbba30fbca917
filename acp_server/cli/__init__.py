"""The command line: parses, then hands over. Imports only what the chosen command needs."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from acp_server.cli.usage import PROGRAM, USAGE_ERROR, UsageError, default_store
from acp_server.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = ("serve", "demo", "sessions")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    if sys.platform == "win32":
        print(f"{PROGRAM}: Windows is not supported; use WSL", file=sys.stderr)  # noqa: T201 - the one answer there
        return USAGE_ERROR
    arguments = sys.argv[1:] if argv is None else list(argv)
    if not arguments or arguments[0] not in (*COMMANDS, "-h", "--help", "--version"):
        # `acp-server --agent X` is what editors have in their configuration.
        arguments.insert(0, "serve")
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except UsageError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)  # noqa: T201 - a command line speaks on stderr
        return USAGE_ERROR


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="Durable agent sessions over the Agent Client Protocol."
    )
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = parser.add_subparsers(required=True)
    _add_serve(commands.add_parser("serve", help="serve a client on stdin and stdout (default)"))
    _add_demo(commands.add_parser("demo", help="play a conversation with the server and show it"))
    _add_sessions(commands.add_parser("sessions", help="look at stored sessions and move them"))
    return parser


def _add_serve(parser: argparse.ArgumentParser) -> None:
    _add_store(parser)
    parser.add_argument(
        "--agent",
        default=os.environ.get("ACP_SERVER_AGENT", "demo"),
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


def _add_sessions(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, dest="command", metavar="COMMAND")
    an_id = "a session: its id, a unique beginning of it, or 'latest'"

    listing = commands.add_parser("list", help="show stored sessions, the latest first")
    listing.add_argument("--cwd", metavar="DIR", help="only sessions of this directory")
    listing.add_argument("--limit", type=int, metavar="N", help="at most so many")

    importing = commands.add_parser("import", help="store session logs that are files")
    importing.add_argument("files", nargs="+", metavar="FILE", help="a log, one record a line")
    importing.add_argument("--id", help="store it under this id instead of its own")
    importing.add_argument("--cwd", metavar="DIR", help="store it for this directory instead")

    converting = commands.add_parser("convert", help="copy sessions into another store")
    converting.add_argument("ids", nargs="*", metavar="ID", help=an_id)
    converting.add_argument("--all", action="store_true", help="every session")
    converting.add_argument("--to", required=True, metavar="KIND:PATH", help="the other store")

    verifying = commands.add_parser("verify", help="check every byte of sessions")
    verifying.add_argument("ids", nargs="*", metavar="ID", help=f"{an_id} (default: every one)")

    for command in (listing, importing, converting, verifying):
        _add_store(command)
        command.add_argument("--json", action="store_true", help="one JSON object a line")
        command.set_defaults(run=_run_sessions)


def _add_store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        default=os.environ.get("ACP_SERVER_STORE"),
        metavar="KIND:PATH",
        help="where sessions are kept: jsonl:PATH, sqlite:PATH or memory: "
        "(default: the user's data directory)",
    )


def _run_sessions(options: argparse.Namespace) -> int:
    from acp_server.cli import sessions  # noqa: PLC0415 - not for --help

    return sessions.run(options)


def _run_serve(options: argparse.Namespace) -> int:
    import anyio  # noqa: PLC0415 - not for --help

    from acp_server.app import ServerConfig, serve_stdio  # noqa: PLC0415 - as above
    from acp_server.builtin_agents.loading import load_agent  # noqa: PLC0415 - as above
    from acp_server.exit_watch import ExitWatch  # noqa: PLC0415 - as above
    from acp_server.transport.stdio import StdioTransport  # noqa: PLC0415 - as above
    from acp_server.turns.errors import AgentsError  # noqa: PLC0415 - as above

    if sys.stdin.isatty():
        hint = f"{PROGRAM}: speaking ACP on stdin and stdout; an editor starts this command"
        print(hint, file=sys.stderr)  # noqa: T201 - One hint for who runs it by hand
    _set_up_logging(options.log_level, options.log_file)
    # Before the agent's module is imported: what it prints must not touch the wire.
    transport = StdioTransport.open()
    # Before it too: an import that never ends must not outlive the client.
    watch = ExitWatch.start(transport.input_fd)
    try:
        agent = load_agent(options.agent)
    except AgentsError as error:
        raise UsageError(str(error)) from error
    store = options.store or default_store()
    code = anyio.run(serve_stdio, ServerConfig(agent=agent, store=store), transport, watch)
    # The interpreter's last collections need not look at what the process is about to give back:
    # that is most of the time from the end of input to the exit.
    gc.freeze()
    return code


def _run_demo(options: argparse.Namespace) -> int:
    import anyio  # noqa: PLC0415 - not for --help

    from acp_server.cli.demo import play  # noqa: PLC0415 - as above

    return anyio.run(play, options.frames)


def _set_up_logging(level: str | None, file: Path | None) -> None:
    """Log where asked and nowhere else: some editors show every byte of stderr as an error."""
    from acp_server.turns.redaction_of_logs import (  # noqa: PLC0415 - not for --help
        PrivateFileHandler,
        RedactingFormatter,
    )

    root = logging.getLogger()
    if file is not None:
        root.addHandler(PrivateFileHandler(file, encoding="utf-8"))
    if level is not None:
        root.addHandler(logging.StreamHandler())
    if not root.handlers:
        root.addHandler(logging.NullHandler())
    form = RedactingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    for handler in root.handlers:
        handler.setFormatter(form)
    root.setLevel((level or "info").upper())
