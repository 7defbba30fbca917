"""The payload shapes of the events this project knows.

Rules: event-types-have-fixed-payloads, further-event-types-are-log-only,
refusal-leaves-models-view, links-become-model-text, kinds-are-open-sums.

Two tables: `APPEND_CHECKS`, the whole shape, held at `append`, where a wrong payload is a
programming error; and `LOAD_CHECKS`, only the fields that projection, folds and repair read, held
when a stored log is read (stored-payloads-are-checked-for-use). Sums with a tag are open: a known
kind is checked, an unknown one passes (kinds-are-open-sums).
"""

from typing import Any, Final

from session_core.shapes import (
    Check,
    Problem,
    anything,
    at_least,
    both,
    exactly,
    fields,
    filled_text,
    flag,
    list_of,
    number,
    one_of,
    tagged,
    text,
    whole,
)

_TURN: Final[dict[str, Check]] = {"turn": at_least(1)}
_STEP: Final[dict[str, Check]] = {**_TURN, "step": at_least(1)}
_COUNT: Final = at_least(0)


def _block(value: Any) -> Problem | None:
    # A tool-result block holds blocks, so the table is looked up when the check runs.
    return _BLOCK_SUM(value)


BLOCKS: Final = list_of(_block)
"""An array of content blocks."""

_BLOCK_SUM: Final = tagged(
    "type",
    {
        "text": fields({"text": text}),
        "reasoning": fields({"text": text}),
        "tool-call": fields({"id": text, "name": text, "arguments": text}),
        "tool-result": fields({"toolCallId": text, "content": BLOCKS}, {"isError": flag}),
        # The ACP-shaped blocks of prompts and tool results (links-become-model-text).
        "image": fields({"data": text, "mimeType": text}),
        "audio": fields({"data": text, "mimeType": text}),
        "resource_link": fields({"uri": text, "name": text}),
        "resource": fields({"resource": fields({"uri": text})}),
    },
)

SOURCE: Final = tagged("kind", {"plugin": fields({"plugin": text})})
"""Who a message comes from."""

_ENVELOPE: Final = exactly(
    {
        "displayContent": BLOCKS,
        "prefixContexts": list_of(exactly({"source": SOURCE}, {"meta": anything})),
    }
)

_USAGE: Final = fields(
    {"inputTokens": whole, "outputTokens": whole},
    {"cacheReadTokens": whole, "cacheWriteTokens": whole, "reasoningTokens": whole},
)

_FAILURE: Final = fields(
    {"message": text, "code": text},
    {"status": whole, "providerRetryAfterMs": number, "requestId": text},
)

_FINISH: Final = tagged(
    "kind",
    {"aborted": fields({"failure": _FAILURE}), "error": fields({"failure": _FAILURE})},
)

_CHUNK: Final = tagged(
    "type",
    {
        "block-start": fields({"index": whole, "blockType": text}),
        "text-delta": fields({"index": whole, "text": text}),
        "reasoning-delta": fields({"index": whole, "text": text}),
        "tool-call-delta": fields(
            {"index": whole, "id": text, "argumentsDelta": text}, {"name": text}
        ),
        "block-end": fields({"index": whole, "block": _block}),
        "usage": fields({"usage": _USAGE}),
        "finish": fields({"reason": _FINISH}),
    },
)

_PROVENANCE: Final = fields({"provider": filled_text, "model": filled_text})

_HEADER: Final = fields(
    {
        "config": fields(
            {"provider": filled_text, "model": filled_text},
            {"temperature": number, "maxTokens": whole},
        )
    },
    {
        "system": text,
        "tools": list_of(fields({"name": text, "description": text, "parameters": fields({})})),
        "messagePrefix": list_of(fields({"role": text, "content": BLOCKS})),
    },
)

_TODO: Final = exactly(
    {"content": text, "status": one_of("pending", "in_progress", "completed")},
)


def _error_end(value: Any) -> Problem | None:
    """Either the structured failure of a model request, or a message with perhaps a code."""
    if ("failure" in value) == ("message" in value):
        return Problem("message", "present exactly if 'failure' is absent")
    if "failure" in value and "code" in value:
        return Problem("code", "absent beside 'failure'")
    return None


TRIGGERS: Final[dict[str, Check]] = {
    "message": fields({"source": SOURCE}),
    "injection": fields({"source": SOURCE}),
}

END_REASONS: Final[dict[str, Check]] = {
    "completed": anything,
    "aborted": exactly({"kind": text}),
    "error": both(
        fields({"step": _COUNT}, {"failure": _FAILURE, "message": text, "code": text}),
        _error_end,
    ),
    "disposed": anything,
    "max-tokens": anything,
    "rejected": fields({"reason": text}),
    "interrupted": anything,
    "refusal": anything,
    "max_turn_requests": anything,
}

_PROMPT: Final[dict[str, Check]] = {"content": BLOCKS, "source": SOURCE}
_HOOK_POINT: Final = one_of("PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop")

APPEND_CHECKS: Final[dict[str, Check]] = {
    "turn/start": exactly({**_TURN, "trigger": fields({"kind": text})}),
    "turn/end": exactly({**_TURN, "reason": fields({"kind": text})}),
    "step/start": exactly(_STEP),
    "step/end": exactly(_STEP),
    "user/message": exactly(_PROMPT, {"envelope": _ENVELOPE, "meta": anything}),
    "prompt/blocked": exactly({**_PROMPT, "reason": text}),
    "context/message": exactly(_PROMPT, {"envelope": one_of("context", "raw"), "meta": anything}),
    "steering/message": exactly({**_TURN, **_PROMPT}, {"envelope": _ENVELOPE, "meta": anything}),
    "assistant/chunk": exactly({**_STEP, "chunk": _CHUNK}),
    "assistant/message": exactly(
        {**_STEP, "content": BLOCKS, "provenance": _PROVENANCE}, {"usage": _USAGE}
    ),
    "tool/call": exactly({**_STEP, "callId": text, "name": text, "arguments": text}),
    "tool/result": exactly(
        {**_STEP, "callId": text, "content": BLOCKS, "isError": flag},
        {"error": exactly({"name": text, "code": text}), "meta": anything},
    ),
    "tool/card": exactly({**_STEP, "callId": text, "view": fields({"type": text})}),
    "todo/write": exactly({"todos": list_of(_TODO)}),
    "request/header": exactly({"header": _HEADER, "reason": one_of("initial", "resume", "change")}),
    "compact/start": exactly(_TURN),
    "compact/summary": exactly(
        {
            "summary": text,
            "shadowedRange": exactly({"start": _COUNT, "end": _COUNT}),
            "shadowedSeqs": list_of(_COUNT),
            "shadowedTokenCount": _COUNT,
            "provider": text,
            "model": text,
        },
        {"maxTokens": _COUNT},
    ),
    "compact/end": exactly(_TURN, {"error": anything}),
    "hook/invoked": exactly(
        {**_TURN, "point": _HOOK_POINT, "dialect": text, "handlerId": text}, {"matcher": text}
    ),
    "hook/result": exactly(
        {
            **_TURN,
            "point": _HOOK_POINT,
            "handlerId": text,
            "decision": text,
            "durationMs": number,
        },
        {"exitCode": whole, "stderrSummary": text},
    ),
    "llm/retry": exactly(
        {
            **_STEP,
            "retry": at_least(1),
            "maxRetries": _COUNT,
            "delayMs": number,
            "failure": _FAILURE,
        }
    ),
    "session/title": exactly(
        {"title": text, "messageSeqs": list_of(_COUNT), "source": fields({"kind": text})}
    ),
    "approval/asked": exactly({"id": text, "toolName": text}, {"callId": text, "reason": text}),
    "approval/decided": exactly({"id": text, "outcome": text}),
    "approval/policy": exactly({"policy": text}),
    "approval/grant": exactly({"toolName": text, "key": text, "effect": one_of("allow", "reject")}),
    "permission/preset": exactly({"preset": text}),
    "config/set": exactly({"configId": text, "value": anything}),
    "sandbox/mode": exactly({"mode": text}),
    "plan/mode": exactly({"active": flag}),
    "tool/code-dispatch": exactly(
        {
            "parentCallId": text,
            "subCallId": text,
            "name": text,
            "arguments": anything,
            "isError": flag,
            "resultSummary": text,
        }
    ),
}

LOADED_PROVENANCE: Final = fields({"provenance": _PROVENANCE})
LOADED_HEADER: Final = fields({"header": fields({"config": _PROVENANCE})})

_READ_BLOCKS: Final = list_of(
    tagged(
        "type",
        {
            "text": fields({"text": text}),
            "reasoning": fields({"text": text}),
            "tool-call": fields({"id": text, "name": text, "arguments": text}),
        },
    )
)
_READ_PROMPT: Final[dict[str, Check]] = {
    "content": _READ_BLOCKS,
    "source": fields({"kind": text}),
}
_READ_DISPLAY: Final[dict[str, Check]] = {
    "envelope": fields({"displayContent": _READ_BLOCKS}),
}
_READ_REASON: Final = tagged("kind", {"error": fields({}, {"failure": fields({"message": text})})})

_READ_STEP: Final[dict[str, Check]] = {"turn": whole, "step": whole}

LOAD_CHECKS: Final[dict[str, Check]] = {
    "turn/start": fields({"turn": whole, "trigger": fields({"kind": text})}),
    "turn/end": fields({"turn": whole, "reason": _READ_REASON}),
    "step/start": fields(_READ_STEP),
    "step/end": fields(_READ_STEP),
    "user/message": fields(_READ_PROMPT, _READ_DISPLAY),
    "prompt/blocked": fields({**_READ_PROMPT, "reason": text}),
    "context/message": fields(_READ_PROMPT, {"envelope": one_of("context", "raw")}),
    "steering/message": fields(_READ_PROMPT, _READ_DISPLAY),
    "assistant/chunk": fields(
        {
            "turn": number,
            "step": number,
            "chunk": tagged(
                "type",
                {
                    "text-delta": fields({"index": number, "text": text}),
                    "reasoning-delta": fields({"index": number, "text": text}),
                    "tool-call-delta": fields({"index": number, "argumentsDelta": text}),
                    "block-start": fields({"index": number, "blockType": text}),
                    "block-end": fields({"index": number, "block": fields({"type": text})}),
                    "finish": fields({"reason": fields({"kind": text})}),
                },
            ),
        }
    ),
    "assistant/message": fields({**_READ_STEP, "content": _READ_BLOCKS}),
    "tool/call": fields({**_READ_STEP, "callId": text, "name": text, "arguments": text}),
    "tool/result": fields(
        {**_READ_STEP, "callId": text, "content": _READ_BLOCKS, "isError": flag},
        {"error": fields({"code": text})},
    ),
    "tool/card": fields({"callId": text, "view": fields({"type": text})}),
    "todo/write": fields({"todos": list_of(fields({"content": text, "status": text}))}),
    "request/header": anything,  # LOADED_HEADER holds what is read of it
    "llm/retry": fields(
        {
            **_READ_STEP,
            "retry": number,
            "maxRetries": number,
            "delayMs": number,
            "failure": fields({"message": text}),
        }
    ),
    "session/title": fields({"title": text}),
    "approval/asked": fields({"id": text}, {"callId": text}),
    "approval/decided": fields({"id": text, "outcome": text}),
    "approval/grant": fields({"toolName": text, "key": text, "effect": text}),
    "permission/preset": fields({"preset": text}),
    "config/set": fields({"configId": text, "value": anything}),
    "plan/mode": fields({"active": flag}),
}

OUT_OF_BAND: Final = frozenset({"session/title", "permission/preset", "config/set"})
"""Core event types that may be appended between turns, each in a turn of its own.

Rules: out-of-band-append-makes-own-turn, settings-are-logged-at-once.
"""
