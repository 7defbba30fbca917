"""Secrets in failure text: found by where they are kept and by what they look like.

Rule: failure-text-hides-secrets.
"""

import pytest

from acp_server.turns.redaction import redact

KEPT = {
    "OPENAI_API_KEY": "k-0123456789",
    "GITHUB_TOKEN": "tok-abcdef",
    "dbPassword": "correct horse",
    "SHORT_KEY": "abc",
    "KEYBOARD": "qwertz-layout",
    "HOME": "/home/somebody",
}


@pytest.mark.rule("failure-text-hides-secrets")
@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("bad key k-0123456789!", "bad key [redacted]!"),
        ("tok-abcdef and correct horse", "[redacted] and [redacted]"),
        ("abc in /home/somebody on qwertz-layout", "abc in /home/somebody on qwertz-layout"),
        ("Authorization: Bearer abc.def", "Authorization: [redacted]"),
        ("{'x-api-key': 'zzz', 'a': 1}", "{'x-api-key': '[redacted]', 'a': 1}"),
        ("sent bearer a.b-c_d to it", "sent bearer [redacted] to it"),
        ("https://me:pass@host/x?y=1", "https://[redacted]@host/x?y=1"),
        ("key sk-proj-abc123 is wrong", "key sk-[redacted] is wrong"),
        ("HTTP 500: upstream said no", "HTTP 500: upstream said no"),
    ],
)
def test_secrets_are_masked_and_nothing_else(text: str, left: str) -> None:
    assert redact(text, KEPT) == left


@pytest.mark.rule("failure-text-hides-secrets")
def test_the_environment_is_asked_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_SECRET", "hush-hush-hush")
    assert redact("it was hush-hush-hush") == "it was [redacted]"
