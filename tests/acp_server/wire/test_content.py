import pytest

from acp_server.wire.errors import WireError
from acp_server.wire.model import parse
from acp_server.wire.requests import PromptParams
from acp_server.wire.shapes import JsonObject

FULL_BLOCKS: list[JsonObject] = [
    {"type": "text", "text": "hi"},
    {"type": "image", "data": "aGk=", "mimeType": "image/png", "uri": "file:///a.png"},
    {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
    {
        "type": "resource_link",
        "uri": "file:///a",
        "name": "a",
        "mimeType": "text/plain",
        "title": "A",
        "description": "d",
        "size": 5,
    },
    {"type": "resource", "resource": {"uri": "file:///a", "text": "t", "mimeType": "text/plain"}},
    {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}},
    {
        "type": "text",
        "text": "",
        "annotations": {
            "audience": ["user", "assistant"],
            "lastModified": "2025-01-01T00:00:00Z",
            "priority": 0.5,
            "_meta": {"a": None},
        },
        "_meta": {"b": [None]},
    },
]


def reread(*blocks: object) -> list[JsonObject]:
    params = parse(PromptParams, {"sessionId": "s", "prompt": list(blocks)})
    return [block.to_json() for block in params.prompt]


def refusal(block: object) -> str:
    with pytest.raises(WireError) as caught:
        reread(block)
    return caught.value.detail


@pytest.mark.rule("prompt-blocks-stay-as-sent")
@pytest.mark.parametrize("block", FULL_BLOCKS)
def test_a_block_comes_back_unchanged(block: JsonObject) -> None:
    assert reread(block) == [block]


@pytest.mark.case("B14")
@pytest.mark.parametrize(
    ("block", "kept"),
    [
        ({"annotations": None}, {}),
        ({"annotations": 5}, {}),
        ({"_meta": None}, {}),
        ({"_meta": "x"}, {}),
        ({"future": 1}, {}),
        ({"annotations": {"audience": None, "priority": 1}}, {"annotations": {"priority": 1}}),
        ({"annotations": {"audience": ["user", 5, "x"]}}, {"annotations": {"audience": ["user"]}}),
        ({"annotations": {"audience": "user"}}, {"annotations": {}}),
        ({"annotations": {"priority": "high"}}, {"annotations": {}}),
        ({"annotations": {"lastModified": 5, "future": 1}}, {"annotations": {}}),
    ],
)
def test_what_is_optional_and_malformed_falls_away(block: JsonObject, kept: JsonObject) -> None:
    text = {"type": "text", "text": "t"}
    assert reread({**text, **block}) == [{**text, **kept}]


@pytest.mark.parametrize("optional", ["mimeType", "title", "description", "size"])
def test_a_malformed_detail_of_a_link_falls_away(optional: str) -> None:
    link = {"type": "resource_link", "uri": "u", "name": "n"}
    assert reread({**link, optional: ["wrong"]}) == [link]
    assert reread({**link, optional: None}) == [link]


@pytest.mark.parametrize(
    ("block", "detail"),
    [
        (17, "`prompt[0]` must be an object"),
        (None, "`prompt[0]` must be an object"),
        ({}, "`prompt[0]` has no block type"),
        ({"type": None}, "`prompt[0]` has no block type"),
        ({"type": "video"}, "`prompt[0]` has the unknown block type 'video'"),
        ({"type": ["text"]}, "`prompt[0]` has the unknown block type \"['text']\""),
        ({"type": "text"}, "`prompt[0].text` is missing"),
        ({"type": "text", "text": 5}, "`prompt[0].text` must be a string"),
        ({"type": "text", "text": None}, "`prompt[0].text` is missing"),
        ({"type": "image", "data": "x"}, "`prompt[0].mimeType` is missing"),
        ({"type": "audio", "mimeType": "x"}, "`prompt[0].data` is missing"),
        ({"type": "resource_link", "uri": "x"}, "`prompt[0].name` is missing"),
        ({"type": "resource"}, "`prompt[0].resource` is missing"),
        ({"type": "resource", "resource": 5}, "`prompt[0].resource` must be an object"),
        ({"type": "resource", "resource": {"uri": "u"}}, "`prompt[0].resource.text` is missing"),
        ({"type": "resource", "resource": {"blob": "u"}}, "`prompt[0].resource.uri` is missing"),
    ],
)
def test_a_block_that_is_none_is_named(block: object, detail: str) -> None:
    assert refusal(block) == detail


def test_one_bad_block_refuses_the_prompt() -> None:
    with pytest.raises(WireError) as caught:
        reread(FULL_BLOCKS[0], {"type": "text"})
    assert caught.value.detail == "`prompt[1].text` is missing"
