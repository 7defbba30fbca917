"""A plan, a tool card, a diff and a permission: `--agent examples/reviewer.py:review`."""

from acp_server import agent


@agent(name="reviewer")
async def review(turn):
    await turn.todos(["read", "rewrite"])
    async with turn.tool("read", title="Read README.md", kind="read") as call:
        text = await turn.files.read("README.md")
        call.result(text)
    if await turn.ask("Rewrite README.md?"):
        async with turn.tool("write", kind="edit") as call:
            call.diff("README.md", text, text.upper())
            await turn.files.write("README.md", text.upper())
