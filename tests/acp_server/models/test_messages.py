"""The model boundary: every block in words, roles in turns, each call followed by its results."""

import base64
import copy
from typing import Any

import pytest

from acp_server.models.messages import NO_OUTPUT, NO_RESULT, model_content, model_messages


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def call(call_id: str) -> dict[str, Any]:
    return {"type": "tool-call", "id": call_id, "name": "t", "arguments": "{}"}


def result(call_id: str, *content: dict[str, Any]) -> dict[str, Any]:
    block = {"type": "tool-result", "toolCallId": call_id, "isError": False}
    return {"role": "user", "content": [{**block, "content": list(content)}]}


def user(*content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def assistant(*content: dict[str, Any]) -> dict[str, Any]:
    provenance = {"provider": "p", "model": "m"}
    return {"role": "assistant", "content": list(content), "provenance": provenance}


def shape(messages: list[dict[str, Any]]) -> list[tuple[str, list[str]]]:
    def word(block: dict[str, Any]) -> str:
        name = block.get("id") or block.get("toolCallId") or block.get("text", "")
        return f"{block['type']} {name}"

    return [(m["role"], [word(block) for block in m["content"]]) for m in messages]


@pytest.mark.rule("links-become-model-text")
def test_a_link_is_flattened_and_joined_without_separator() -> None:
    link = {"type": "resource_link", "name": 'a "b"\n.txt', "uri": "file:///w/ä.txt"}
    assert model_content([text("see"), link, text("now")]) == [
        text('see\n[resource_link name="a \\"b\\"\\n.txt" uri="file:///w/ä.txt"]\nnow')
    ]


@pytest.mark.case("B76")
@pytest.mark.parametrize(
    ("resource", "words"),
    [
        ({"uri": "file:///a", "text": "whole\ntext"}, "whole\ntext"),
        (
            {
                "uri": "file:///a",
                "mimeType": "text/plain",
                "blob": base64.b64encode("hé".encode()).decode(),
            },
            "hé",
        ),
        (
            {"uri": "file:///a", "mimeType": "application/pdf", "blob": "AAAA"},
            "[4 base64 characters of application/pdf]",
        ),
        (
            {"uri": "file:///a", "mimeType": "text/plain", "blob": "//79"},
            "[4 base64 characters of text/plain]",
        ),
        (
            {"uri": "file:///a", "mimeType": "text/plain", "blob": "no base64"},
            "[9 base64 characters of text/plain]",
        ),
        ({"uri": "file:///a", "blob": "AAAA"}, "[4 base64 characters of unknown type]"),
    ],
)
def test_an_embedded_resource_brings_its_uri_and_what_can_be_read(
    resource: dict[str, str], words: str
) -> None:
    assert model_content([{"type": "resource", "resource": resource}]) == [
        text(f'\n[resource uri="file:///a"]\n{words}\n[/resource]\n')
    ]


def test_images_and_unknown_blocks_are_left_to_the_adapter() -> None:
    image = {"type": "image", "data": "AA==", "mimeType": "image/png"}
    strange = {"type": "foo", "x": 1}
    assert model_content([text("a"), image, text("b"), strange]) == [
        text("a"),
        image,
        text("b"),
        strange,
    ]


@pytest.mark.rule("provider-messages-are-well-formed")
@pytest.mark.case("B73")
def test_blank_text_is_dropped_and_a_silent_result_speaks() -> None:
    messages = [user(text("hi"), text("")), assistant(text("  "), call("1")), result("1", text(""))]
    sent = model_messages(messages)
    assert shape(sent) == [
        ("user", ["text hi"]),
        ("assistant", ["tool-call 1"]),
        ("user", ["tool-result 1"]),
    ]
    assert sent[2]["content"][0]["content"] == [text(NO_OUTPUT)]


@pytest.mark.rule("provider-messages-are-well-formed")
def test_neighbours_of_one_role_are_one_message() -> None:
    messages = [
        user(text("a")),
        user(text("b")),
        assistant(text("c")),
        assistant(text("d")),
        assistant(),
    ]
    assert shape(model_messages(messages)) == [
        ("user", ["text a", "text b"]),
        ("assistant", ["text c", "text d"]),
    ]


@pytest.mark.rule("provider-messages-are-well-formed")
def test_results_follow_their_calls_in_the_order_of_the_calls() -> None:
    messages = [
        user(text("go")),
        assistant(call("1"), call("2")),
        result("2"),
        assistant(text("meanwhile")),
        user(text("told")),
        result("1"),
        assistant(text("done")),
    ]
    assert shape(model_messages(messages)) == [
        ("user", ["text go"]),
        ("assistant", ["tool-call 1", "tool-call 2"]),
        ("user", ["tool-result 1", "tool-result 2"]),
        ("assistant", ["text meanwhile"]),
        ("user", ["text told"]),
        ("assistant", ["text done"]),
    ]


def test_a_context_message_never_parts_a_call_from_its_result() -> None:
    messages = [assistant(call("1")), user(text("<context>")), result("1")]
    assert shape(model_messages(messages)) == [
        ("assistant", ["tool-call 1"]),
        ("user", ["tool-result 1", "text <context>"]),
    ]


@pytest.mark.rule("provider-messages-are-well-formed")
def test_a_call_without_a_result_gets_one_and_a_result_without_a_call_goes() -> None:
    sent = model_messages([result("0", text("lost")), assistant(call("1"))])
    assert shape(sent) == [("assistant", ["tool-call 1"]), ("user", ["tool-result 1"])]
    assert sent[1]["content"][0]["content"] == [text(NO_RESULT)]
    assert sent[1]["content"][0]["isError"] is True


@pytest.mark.rule("provider-messages-are-well-formed")
def test_the_history_itself_stays_untouched() -> None:
    messages = [user(text("a")), user(text("b")), assistant(call("1")), result("1", text("x"))]
    before = copy.deepcopy(messages)
    model_messages(messages)
    assert messages == before
