"""Paths of sessions: safe, distinct, and the same everywhere."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistence import InvalidSessionIdError
from persistence.jsonl.layout import bucket_name, is_bucket, session_paths, slug
from persistence.names import encode_id

SAFE = frozenset(string.ascii_letters + string.digits + "._-~")


@pytest.mark.rule("ids-are-encoded-injectively")
@pytest.mark.parametrize(
    ("session_id", "encoded"),
    [
        ("0198-ab.c_D", "0198-ab.c_D"),
        ("a/b", "a~002Fb"),
        ("../x", "..~002Fx"),
        ("é", "~00E9"),
        ("😀", "~D83D~DE00"),
        ("~", "~007E"),
        (".", "~002E"),
        ("..", "~002E~002E"),
        ("...", "..."),
        ("\ud83d", "~D83D"),
        ("a\0b", "a~0000b"),
    ],
)
def test_an_id_becomes_a_safe_name(session_id: str, encoded: str) -> None:
    assert encode_id(session_id) == encoded


@pytest.mark.rule("ids-are-encoded-injectively")
@pytest.mark.parametrize("session_id", ["", "x" * 256, "/" * 60])
def test_an_id_that_names_no_directory_is_refused(session_id: str) -> None:
    with pytest.raises(InvalidSessionIdError):
        encode_id(session_id)


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_two_ids_never_share_a_name(one: str, other: str) -> None:
    assert (encode_id(one) == encode_id(other)) is (one == other)
    assert set(encode_id(one)) <= SAFE
    assert encode_id(one) not in {".", ".."}


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        ("/home/me/project", "home-me-project"),
        ("C:\\Users\\me", "C-Users-me"),
        ("/", "root"),
        ("/tmp/プ", "tmp-~30D7"),
        ("/a b", "a~0020b"),
        ("//a//b", "a-b"),
        ("/" + "x" * 300, "x" * 251),
    ],
)
def test_a_directory_becomes_a_readable_name(cwd: str, name: str) -> None:
    assert slug(cwd) == name
    assert is_bucket(bucket_name(cwd))
    assert len(bucket_name(cwd)) <= 255


def test_a_session_without_a_directory_has_a_bucket_that_no_directory_gives() -> None:
    assert is_bucket(bucket_name(None))
    assert not bucket_name(None).startswith("--")


def test_paths_are_those_of_the_contract() -> None:
    paths = session_paths("/store", "a/b", "/work")
    assert paths.log == "/store/--work--/a~002Fb/session.jsonl"
    assert paths.sidecar == "/store/--work--/a~002Fb/session.crc"
    assert paths.lock == "/store/--work--/a~002Fb/writer.lock"
    assert paths.pid == "/store/--work--/a~002Fb/writer.pid"
    assert paths.key == "--work--/a~002Fb"
