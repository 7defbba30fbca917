"""The smallest agent: `acp-server serve --agent examples/hello.py:hello`."""

from acp_server import agent


@agent
async def hello(turn):
    await turn.text(f"hello {turn.prompt}")
