"""The agent that load drivers ask: `stream N` is answered with N chunks, anything else with one."""

from acp_server import agent


@agent(name="bench")
async def stream(turn):
    word, _, count = turn.prompt.partition(" ")
    for n in range(int(count) if word == "stream" else 1):
        await turn.text(f"chunk {n:07d} abcdef")
