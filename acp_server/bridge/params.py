"""What is asked of the params of a method beyond their shape (any-absolute-cwd-is-taken)."""

from __future__ import annotations

import os.path
import posixpath
from typing import TYPE_CHECKING, Any, TypeVar

from acp_server.rpc.errors import RpcError
from acp_server.turns.bounds import MAX_SHOWN_DEPTH
from acp_server.wire.errors import WireError
from acp_server.wire.model import parse
from session_core import NotJsonError
from session_core.json_value import freeze_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acp_server.agents.agent import Agent
    from acp_server.rpc.table import Params
    from acp_server.wire.model import WireModel
    from session_core import SessionHeader

    ParamsT = TypeVar("ParamsT", bound=WireModel)


def parse_params(model: type[ParamsT], params: Params) -> ParamsT:
    """Return the params as the model of their method.

    Raises:
        RpcError: They have another shape: -32602.
    """
    try:
        return parse(model, params)
    except WireError as error:
        raise RpcError.invalid_params(str(error)) from error


def stored_cwd(cwd: str) -> str:
    """Return a directory as it is stored: as sent, lexically normalized.

    Rule: directory-spellings-are-one.
    """
    return posixpath.normpath(cwd)


def require_same_cwd(asked: str, header: SessionHeader) -> None:
    """Return if the directory is that of the session, in whatever spelling.

    Rule: directory-spellings-are-one.

    Raises:
        RpcError: It is another one: -32602, naming both.
    """
    stored = header.cwd
    if stored is None:
        raise RpcError.invalid_params("cwd: the stored session has no working directory")
    if os.path.realpath(stored) != os.path.realpath(asked):
        raise RpcError.invalid_params(f"cwd: the session belongs to {stored!r}, not {asked!r}")


def require_content(agent: Agent, blocks: Sequence[dict[str, Any]]) -> None:
    """Return if the agent takes these blocks and they say anything (empty-prompts-are-refused).

    Their nesting is bounded too: the log could not hold what is deeper.

    Raises:
        RpcError: It does not, or they do not: -32602.
    """
    taken = {
        "image": agent.takes_images,
        "audio": agent.takes_audio,
        "resource": agent.takes_resources,
    }
    for block in blocks:
        if not taken.get(block["type"], True):
            raise RpcError.invalid_params(f"prompt: this agent takes no {block['type']}")
    try:
        freeze_json(blocks, what="prompt", max_depth=MAX_SHOWN_DEPTH)
    except NotJsonError as error:
        raise RpcError.invalid_params(f"prompt: {error.reason}") from error
    if all(block["type"] == "text" and not block["text"].strip() for block in blocks):
        raise RpcError.invalid_params("prompt: it is empty")
