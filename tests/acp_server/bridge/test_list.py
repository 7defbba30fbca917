"""session/list: what is in it, in which order, page by page."""

import json
from pathlib import Path

import anyio
import pytest

from acp_server.agents.agent import Agent
from acp_server.agents.turn import Turn
from acp_server.testing import AcpClient, AcpError, running_server
from persistence import import_log, open_backend
from persistence.testing.harness import turn_events
from tests.acp_server.helpers import ECHO


async def listed(client: AcpClient, cwd: str | Path | None = None) -> list[str]:
    return [row["sessionId"] for row in (await client.list_sessions(cwd))["sessions"]]


@pytest.mark.rule("list-rows-fold-the-log")
async def test_pages_hold_each_session_once_newest_first() -> None:
    backend = open_backend("memory:")
    async with running_server(ECHO, store=backend) as client:
        sessions = []
        for number in range(120):
            sessions.append(await client.new_session("/tmp/w"))
            await client.prompt(sessions[-1], f"prompt {number}")
        pages, cursor = [], None
        while True:
            page = await client.list_sessions(cursor=cursor)
            pages.append([row["sessionId"] for row in page["sessions"]])
            cursor = page.get("nextCursor")
            if cursor is None:
                break
        assert [len(page) for page in pages] == [50, 50, 20]
        assert [row for page in pages for row in page] == sessions[::-1]
        (row,) = (await client.list_sessions())["sessions"][:1]
        assert row["title"] == "prompt 119"
        assert row["cwd"] == "/tmp/w"
        assert row["updatedAt"].endswith("Z")


@pytest.mark.rule("list-rows-fold-the-log")
@pytest.mark.parametrize("params", [{"cursor": "nonsense"}, {"cwd": "rel"}, {"cursor": 7}])
async def test_a_wrong_cursor_or_directory_is_refused(params: dict[str, object]) -> None:
    async with running_server(ECHO) as client:
        with pytest.raises(AcpError) as caught:
            await client.request("session/list", params)
        assert caught.value.code == -32602


@pytest.mark.rule("directory-spellings-are-one")
@pytest.mark.case("B23")
async def test_spellings_of_one_directory_are_one_and_similar_names_are_many(
    tmp_path: Path,
) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    names = ["a-b", "a/b", "a_b", "プロ ジェクト", "A-B"]
    store = f"jsonl:{tmp_path / 'store'}"
    async with running_server(ECHO, store=store) as client:
        session_id = await client.new_session(link)
        await client.prompt(session_id, "x")
        for spelling in (real, link, f"{tmp_path}/./real/", f"{real}/"):
            assert await listed(client, spelling) == [session_id]
        own = {}
        for name in names:
            own[name] = await client.new_session(tmp_path / name)
            await client.prompt(own[name], name)
        for name in names:
            assert await listed(client, tmp_path / name) == [own[name]]
        rows = (await client.list_sessions())["sessions"]
    async with running_server(ECHO, store=store, series=1) as client:
        for row in rows:
            await client.load_session(row["sessionId"], row["cwd"])


@pytest.mark.rule("bad-entries-hide-no-others")
@pytest.mark.parametrize("store", ["jsonl:{}/store", "sqlite:{}/store.db"])
async def test_a_time_that_no_calendar_has_hides_no_session(
    store: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = store.format(tmp_path)
    times = {"good": (5, 2000), "born": (2**53 - 1, 2000), "ended": (5, 253_402_300_800_000)}
    backend = open_backend(store)
    for name, (born, time) in times.items():
        header = {"type": "session", "version": 0, "id": name, "createdAt": born, "cwd": "/tmp/w"}
        events = [event.to_json() for event in turn_events(1, 0, time=time)]
        title = {"title": "T" * 1000, "messageSeqs": [], "source": {"kind": "agent"}}
        events.append({"type": "session/title", "seq": 3, "time": time, "data": title})
        log = tmp_path / f"{name}.jsonl"
        log.write_text("".join(f"{json.dumps(line)}\n" for line in [header, *events]))
        await import_log(log, backend)
    await backend.close()
    async with running_server(ECHO, store=store) as client:
        for _ in range(2):
            rows = {row["sessionId"]: row for row in (await client.list_sessions())["sessions"]}
            assert rows["good"]["updatedAt"] == "1970-01-01T00:00:02.002Z"
            assert rows["born"] == rows["ended"] | {"sessionId": "born"}
            assert "updatedAt" not in rows["born"]
            assert {len(row["title"]) for row in rows.values()} == {200}
        for name in times:
            assert len([text for text in caplog.messages if f"'{name}'" in text]) == (
                name != "good"
            )
            await client.load_session(name, "/tmp/w")


@pytest.mark.rule("list-rows-fold-the-log")
async def test_a_title_given_in_a_running_turn_is_listed_at_once() -> None:
    named, go_on = anyio.Event(), anyio.Event()

    async def name(turn: Turn) -> None:
        await turn.title(turn.prompt)
        async with turn.tool("wait"):
            named.set()
            await go_on.wait()

    async with running_server(Agent("name", name)) as client:
        session_id = await client.new_session("/tmp/w")
        handle = await client.start_prompt(session_id, "Live")
        await named.wait()
        await client.wait_for_update(lambda u: u.get("status") == "in_progress")
        (row,) = (await client.list_sessions())["sessions"]
        assert row["title"] == "Live"
        go_on.set()
        await handle.result()
        assert (await client.list_sessions())["sessions"][0]["title"] == "Live"
