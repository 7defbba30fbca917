"""The built-in agent without a model: deterministic, and harmless in a real project.

It shows what the server can do on the user's own workspace: thoughts, a plan, a file read, a
streamed answer, a permission with a diff. It writes `acp-demo-scratch.txt` and nothing else, and
that only when the user allows it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import anyio

from acp_server.agents.agent import agent
from acp_server.turns.errors import PermissionDenied

if TYPE_CHECKING:
    from acp_server.agents.turn import Turn
    from acp_server.turns.policy import PromptView

SCRATCH = "acp-demo-scratch.txt"
"""The one file that the demo writes."""

WORD_DELAY_S = 0.02
"""Pause between words: slow enough to watch and to cancel, fast enough not to bore."""

_MAX_SHOWN_LINES = 3
_MAX_LISTED_NAMES = 8
_PREFERRED = ("README.md", "README.rst", "README.txt", "README", "pyproject.toml", "package.json")
_FORBIDDEN = re.compile(r"\brm\s+-\w*[rf]|\bdelete everything\b|\bforbidden\b", re.IGNORECASE)
_TASKS = ("Look at the workspace", "Answer the prompt", "Edit a scratch file")


def policy(prompt: PromptView) -> str | None:
    """Refuse prompts that ask for destruction, to show what a rejected turn looks like."""
    found = _FORBIDDEN.search(prompt.text)
    if found is None:
        return None
    return f"the demo's policy does not allow prompts with {found.group(0)!r}"


@agent(name="demo", policy=policy)
async def demo(turn: Turn) -> None:
    """Play the tour: think, plan, read, answer, ask, edit."""
    prompts = sum(1 for message in turn.history if _is_prompt(message))
    await _say(turn, "Let me look at the workspace before I answer.", thought=True)
    await _plan(turn, done=0)
    seen = await _look(turn)
    await _plan(turn, done=1)
    await _say(turn, _answer(turn.prompt, prompts, seen))
    await _plan(turn, done=2)
    edited = await _edit(turn, prompts)
    await _plan(turn, done=len(_TASKS))
    ending = f" I have updated {SCRATCH}." if edited else " You declined the edit; nothing changed."
    await _say(turn, "\n\nThat is the tour." + ending)


async def _plan(turn: Turn, done: int) -> None:
    statuses = ["completed" if n < done else "pending" for n in range(len(_TASKS))]
    if done < len(_TASKS):
        statuses[done] = "in_progress"
    await turn.todos(list(zip(_TASKS, statuses, strict=True)))


async def _say(turn: Turn, text: str, *, thought: bool = False) -> None:
    show = turn.thought if thought else turn.text
    for word in re.findall(r"\s*\S+|\s+$", text):
        await show(word)
        await anyio.sleep(WORD_DELAY_S)


async def _look(turn: Turn) -> str:
    """Read one well-known file of the workspace, or list the folder where there is none."""
    try:
        names = await turn.files.names()
    except OSError:
        return "I cannot see into the workspace"
    name = next((name for name in _PREFERRED if name in names), None)
    if name is None:
        async with turn.tool("list", title="List the workspace", kind="search") as call:
            call.result("\n".join(names[:_MAX_LISTED_NAMES]) or "(empty)")
        return f"The workspace holds {len(names)} entries"
    try:
        async with turn.tool(
            "read",
            title=f"Read {name}",
            kind="read",
            arguments={"path": name},
            locations=[name],
            path=name,
        ) as call:
            text = await turn.files.read(name)
            call.result("\n".join(text.splitlines()[:_MAX_SHOWN_LINES]))
    except (PermissionDenied, OSError, UnicodeDecodeError):
        return f"I could not read {name}"
    return f"{name} has {len(text.splitlines())} lines"


def _answer(prompt: str, prompts: int, seen: str) -> str:
    shown = " ".join(prompt.split())[:60]
    return (
        f"You said: {shown!r} - prompt number {prompts} of this session. {seen}. "
        "I am the demo agent: I have no model, so I cannot do what you ask, "
        "but everything you see here is real. "
        "Each word was appended to the session's log before it reached your editor, "
        "and when this process is killed, the log is what brings the conversation back."
    )


async def _edit(turn: Turn, prompts: int) -> bool:
    """Ask for leave to add a line to the scratch file; return whether it was added."""
    old: str | None = None
    try:
        # Looked for first: some editors show a failed read as an error of the agent.
        if SCRATCH in await turn.files.names():
            old = await turn.files.read(SCRATCH)
    except UnicodeDecodeError:
        return False  # not a file of ours
    except OSError:
        old = None
    new = (old or "") + f"prompt {prompts} was here\n"
    try:
        async with turn.tool(
            "edit",
            title=f"Edit {SCRATCH}",
            kind="edit",
            arguments={"path": SCRATCH},
            locations=[SCRATCH],
            diff=(SCRATCH, old, new),
            ask=True,
            path=SCRATCH,
        ) as call:
            await turn.files.write(SCRATCH, new)
            call.result(f"Wrote {SCRATCH}")
    except (PermissionDenied, OSError):
        return False
    return True


def _is_prompt(message: object) -> bool:
    return (
        isinstance(message, dict)
        and message.get("role") == "user"
        and any(block["type"] == "text" for block in message["content"])
    )
