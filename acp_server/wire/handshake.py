"""Reads the params of `initialize`, without pydantic and without ever failing on a capability.

ACP v1 marks every member but `protocolVersion` "default on error": a capability that is missing,
null or of the wrong type is simply not there (cases B13 and B14). Only what is exactly
as specified counts as supported: booleans must be `true`, markers must be objects.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from acp_server.wire.errors import WireError

PROTOCOL_VERSION = 1
_MAX_VERSION = 65535  # ProtocolVersion is a uint16 in the schema
_MAX_NAME = 200  # a client name is for logs and messages; longer ones are cut


@dataclass(frozen=True, slots=True)
class ClientCapabilities:
    """What the connected client can do and how it calls itself.

    Attributes:
        requested_version: The protocol version it asked for; it is always answered with 1.
        fs_read: `fs/read_text_file` may be called.
        fs_write: `fs/write_text_file` may be called.
        terminal: All five `terminal/*` methods may be called.
        boolean_options: Config options of type `boolean` may be sent.
        notices: The update `notice` may be sent.
        terminal_output_meta: Terminal output may be shown through `_meta` (exactly `true`,
            wrong-capabilities-count-absent).
        elicitation_form: `elicitation/create` of mode `form` may be called.
        elicitation_url: `elicitation/create` of mode `url` may be called.
        auth_terminal: Auth methods of type `terminal` may be offered.
        client_name: `clientInfo.name`, or "".
        client_version: `clientInfo.version`, or "".
    """

    requested_version: int = PROTOCOL_VERSION
    fs_read: bool = False
    fs_write: bool = False
    terminal: bool = False
    boolean_options: bool = False
    notices: bool = False
    terminal_output_meta: bool = False
    elicitation_form: bool = False
    elicitation_url: bool = False
    auth_terminal: bool = False
    client_name: str = ""
    client_version: str = ""


def read_initialize(params: object) -> ClientCapabilities:
    """Read the params of `initialize`.

    Raises:
        WireError: If params are no object or `protocolVersion` is missing or no version number.
    """
    if not isinstance(params, Mapping):
        raise WireError("params must be an object")
    version = _read_version(params.get("protocolVersion"))
    capabilities = _object(params, "clientCapabilities")
    fs = _object(capabilities, "fs")
    session = _object(capabilities, "session")
    elicitation = _object(capabilities, "elicitation")
    info = _object(params, "clientInfo")
    return ClientCapabilities(
        requested_version=version,
        fs_read=fs.get("readTextFile") is True,
        fs_write=fs.get("writeTextFile") is True,
        terminal=capabilities.get("terminal") is True,
        boolean_options=_marked(_object(session, "configOptions"), "boolean"),
        notices=_marked(session, "notices"),
        terminal_output_meta=_object(capabilities, "_meta").get("terminal_output") is True,
        elicitation_form=_marked(elicitation, "form"),
        elicitation_url=_marked(elicitation, "url"),
        auth_terminal=_object(capabilities, "auth").get("terminal") is True,
        client_name=_text(info, "name"),
        client_version=_text(info, "version"),
    )


def _read_version(value: object) -> int:
    """Return the version as an integer.

    A string of digits is read as that number, a leniency that costs nothing since the answer is 1
    in any case; JSON does not tell 1.0 from 1, so neither do we. `true` is not a number.
    """
    if value is None:
        raise WireError("`protocolVersion` is missing")
    number: int | None = None
    if isinstance(value, str):
        number = int(value) if value.isascii() and value.isdigit() and len(value) <= 5 else None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = int(value) if value == value // 1 else None
    if number is None or not 0 <= number <= _MAX_VERSION:
        raise WireError(f"`protocolVersion` must be an integer from 0 to {_MAX_VERSION}")
    return number


def _object(parent: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = parent.get(key)
    return value if isinstance(value, Mapping) else {}


def _marked(parent: Mapping[str, object], key: str) -> bool:
    """Tell whether a marker capability is there: an object, `{}` being the normal value."""
    return isinstance(parent.get(key), Mapping)


def _text(parent: Mapping[str, object], key: str) -> str:
    value = parent.get(key)
    return value[:_MAX_NAME] if isinstance(value, str) else ""
