import subprocess
import sys

import pytest

from acp_server.wire.errors import WireError
from acp_server.wire.handshake import ClientCapabilities, read_initialize


@pytest.mark.rule("version-is-answered-one")
@pytest.mark.case("B13")
@pytest.mark.parametrize(
    ("version", "read"), [(1, 1), (0, 0), (2, 2), (99, 99), (65535, 65535), ("1", 1), (1.0, 1)]
)
def test_a_version_number_is_read(version: object, read: int) -> None:
    assert read_initialize({"protocolVersion": version}).requested_version == read


@pytest.mark.rule("version-is-answered-one")
@pytest.mark.case("B13")
@pytest.mark.parametrize(
    "version",
    [
        *(65536, -1, 1.5, float("inf"), float("nan"), True, False, None),
        *("2025-03-26", "", "-1", "1.0", "٣", "1" * 5000),
        *([], {}, [1]),
    ],
)
def test_what_is_no_version_number_is_refused(version: object) -> None:
    with pytest.raises(WireError, match="protocolVersion"):
        read_initialize({"protocolVersion": version})


@pytest.mark.rule("version-is-answered-one")
@pytest.mark.case("B13")
@pytest.mark.parametrize("params", [None, [], "x", 1])
def test_params_must_be_an_object(params: object) -> None:
    with pytest.raises(WireError):
        read_initialize(params)


@pytest.mark.rule("version-is-answered-one")
@pytest.mark.case("B13")
def test_the_version_must_be_there() -> None:
    with pytest.raises(WireError) as caught:
        read_initialize({})
    assert caught.value.detail == "`protocolVersion` is missing"


@pytest.mark.case("B14")
@pytest.mark.parametrize(
    "capabilities",
    [
        None,
        "all",
        [],
        {"fs": None},
        {"fs": True},
        {"fs": {"readTextFile": None}},
        {"fs": {"readTextFile": 1, "writeTextFile": "true"}},
        {"terminal": "yes"},
        {"terminal": {}},
        {"session": {"configOptions": {"boolean": True}, "notices": None}},
        {"session": []},
        {"elicitation": {"form": None, "url": False}},
        {"elicitation": {}},
        {"auth": {"terminal": "x"}},
        {"_meta": None},
        {"future": {"x": 1}},
    ],
)
def test_a_capability_that_is_not_as_specified_is_not_there(capabilities: object) -> None:
    params = {"protocolVersion": 1, "clientCapabilities": capabilities}
    assert read_initialize(params) == ClientCapabilities(requested_version=1)


@pytest.mark.rule("wrong-capabilities-count-absent")
@pytest.mark.parametrize(
    ("value", "on"), [(True, True), (1, False), ("true", False), (None, False), ({}, False)]
)
def test_terminal_output_is_on_only_for_true(value: object, on: bool) -> None:
    params = {"protocolVersion": 1, "clientCapabilities": {"_meta": {"terminal_output": value}}}
    assert read_initialize(params).terminal_output_meta is on


@pytest.mark.rule("extra-members-are-accepted")
def test_all_capabilities_of_a_full_client_are_read() -> None:
    params = {
        "protocolVersion": 1,
        "clientCapabilities": {
            "fs": {"readTextFile": True, "writeTextFile": True},
            "terminal": True,
            "auth": {"terminal": True},
            "session": {"configOptions": {"boolean": {}}, "notices": {}},
            "elicitation": {"form": {}, "url": {}},
            "_meta": {"terminal_output": True, "terminal-auth": True},
        },
        "clientInfo": {"name": "zed", "title": "Zed", "version": "1.2"},
        "_meta": {"traceparent": "00-0-0-00"},
    }
    assert read_initialize(params) == ClientCapabilities(
        requested_version=1,
        fs_read=True,
        fs_write=True,
        terminal=True,
        boolean_options=True,
        notices=True,
        terminal_output_meta=True,
        elicitation_form=True,
        elicitation_url=True,
        auth_terminal=True,
        client_name="zed",
        client_version="1.2",
    )


@pytest.mark.case("B14")
@pytest.mark.parametrize(
    ("info", "name"), [(None, ""), ({"name": "z"}, "z"), ({"name": 5}, ""), ("z", ""), ({}, "")]
)
def test_client_info_may_be_incomplete(info: object, name: str) -> None:
    assert read_initialize({"protocolVersion": 1, "clientInfo": info}).client_name == name


@pytest.mark.rule("initialize-is-answered-alone")
def test_handshake_and_builders_load_without_pydantic() -> None:
    names = ("handshake", "updates", "results", "client_requests", "blocks", "errors")
    imports = "; ".join(f"import acp_server.wire.{name}" for name in names)
    probe = f"import sys; {imports}; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
