"""Compares what a run gave with what is expected, and says it as a reader wants to know it.

First one sentence on the first difference, then the differences by meaning: what is missing, what
came instead, which fields changed, and the event behind each frame. Lines that differ only in the
numbers of events are counted, not shown: they follow from something else.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from acp_server.testing.kit.labels import (
    changed_fields,
    event_behind,
    exact_bytes,
    kind_of,
    label_of,
    shape_of,
)

Json: TypeAlias = dict[str, Any]

_SHOWN_CHANGES = 12
_SHOWN_FIELDS = 6
_SHOWN_CHARS = 160


@dataclass(frozen=True, slots=True)
class Change:
    """One line that is not as expected.

    Attributes:
        kind: Whether the line is expected and missing, there and unexpected, changed in a field,
            or changed in the numbers of events only.
        position: Its number in the new lines, from 1; for a missing line the place it would have.
        old: The expected line, None if there is none.
        new: The line that is there, None if there is none.
    """

    kind: Literal["missing", "unexpected", "changed", "renumbered"]
    position: int
    old: Json | None
    new: Json | None

    def sentence(self, total: int) -> str:
        """Say what differs."""
        if self.new is None:
            assert self.old is not None  # noqa: S101 - a change has a side
            return f"{label_of(self.old)} is missing, which should be line {self.position}"
        place = f"line {self.position} of {total}"
        if self.old is None:
            return f"{label_of(self.new)} is there unexpectedly, {place}"
        path, old, new = next(changed_fields(self.old, self.new))
        return (
            f"{label_of(self.new)}, {place}, has `{path}` {_shown(new)} "
            f"where {_shown(old)} is expected"
        )


@dataclass(frozen=True, slots=True)
class FileDifference:
    """How one file of a scenario differs from the run.

    Attributes:
        file: Its name.
        changes: In order.
        total: Number of lines of the run.
        logs: The normalized logs of the run.
    """

    file: str
    changes: tuple[Change, ...]
    total: int
    logs: Sequence[Sequence[Json]] = field(default=(), repr=False)

    def sentence(self) -> str:
        """Say what differs first, by meaning if anything does."""
        real = [change for change in self.changes if change.kind != "renumbered"]
        return f"{self.file}: {(real or list(self.changes))[0].sentence(self.total)}"

    def report(self) -> list[str]:
        """Return the differences as lines."""
        real = [change for change in self.changes if change.kind != "renumbered"]
        shown = real[:_SHOWN_CHANGES] or list(self.changes[:1])
        lines = [self.file]
        for change in shown:
            lines.extend(f"  {line}" for line in _change_lines(change, self.logs))
        hidden = len(real) - len(shown)
        if hidden > 0:
            lines.append(f"  … and {hidden} more")
        renumbered = len(self.changes) - len(real)
        if renumbered and real:
            lines.append(f"  {renumbered} further lines differ only in the numbers of events")
        return lines


def differences(
    expected: Mapping[str, Sequence[Json]],
    found: Mapping[str, Sequence[Json]],
    logs: Sequence[Sequence[Json]] = (),
) -> list[FileDifference]:
    """Return the files that differ, those of the frames first.

    Args:
        expected: Lines by file name.
        found: What the run gave, likewise.
        logs: Its normalized logs, for the events behind frames.
    """
    names = [*expected, *(name for name in found if name not in expected)]
    all_changes = {name: changes(expected.get(name, ()), found.get(name, ())) for name in names}
    return [
        FileDifference(name, tuple(these), len(found.get(name, ())), logs)
        for name, these in all_changes.items()
        if these
    ]


def changes(expected: Sequence[Json], found: Sequence[Json]) -> list[Change]:
    """Return how two lists of lines differ, aligned by meaning."""
    matcher = difflib.SequenceMatcher(
        None, [shape_of(line) for line in expected], [shape_of(line) for line in found], False
    )
    result: list[Change] = []
    for tag, old_start, old_stop, new_start, new_stop in matcher.get_opcodes():
        old, new = expected[old_start:old_stop], found[new_start:new_stop]
        if tag == "equal":
            result.extend(
                Change("renumbered", new_start + offset + 1, one, other)
                for offset, (one, other) in enumerate(zip(old, new, strict=True))
                if exact_bytes(one) != exact_bytes(other)
            )
        else:
            result.extend(_unaligned(old, new, new_start))
    return result


def _unaligned(old: Sequence[Json], new: Sequence[Json], start: int) -> Iterator[Change]:
    """Pair lines of one kind, in order; what has no partner is missing or unexpected."""
    matcher = difflib.SequenceMatcher(
        None, [kind_of(line) for line in old], [kind_of(line) for line in new], False
    )
    for tag, old_start, old_stop, new_start, new_stop in matcher.get_opcodes():
        first = start + new_start + 1
        if tag == "equal":
            for offset in range(old_stop - old_start):
                pair = old[old_start + offset], new[new_start + offset]
                yield Change("changed", first + offset, *pair)
            continue
        for line in old[old_start:old_stop]:
            yield Change("missing", first, line, None)
        for offset, line in enumerate(new[new_start:new_stop]):
            yield Change("unexpected", first + offset, None, line)


def _change_lines(change: Change, logs: Sequence[Sequence[Json]]) -> list[str]:
    if change.new is None:
        assert change.old is not None  # noqa: S101 - a change has a side
        return [f"- {label_of(change.old)}: {_shown(_core(change.old))}"]
    event = event_behind(change.new, logs)
    behind = "" if event is None else f"   <- {label_of(event)}"
    if change.old is None:
        return [f"+ {label_of(change.new)}: {_shown(_core(change.new))}{behind}"]
    fields = list(changed_fields(change.old, change.new))
    lines = [f"~ {label_of(change.new)}{behind}"]
    lines += [
        f"    {path}: {_shown(old)} -> {_shown(new)}" for path, old, new in fields[:_SHOWN_FIELDS]
    ]
    if len(fields) > _SHOWN_FIELDS:
        lines.append(f"    … and {len(fields) - _SHOWN_FIELDS} more fields")
    return lines


def _core(line: Json) -> Any:
    """Return what a line says, without the envelope that its label has already named."""
    params = line.get("params")
    if isinstance(params, dict):
        return params.get("update", params)
    for name in ("result", "error", "data"):
        if name in line:
            return line[name]
    return line


def _shown(value: Any) -> str:
    if value is ...:
        return "absent"
    text = exact_bytes({"": value})[4:-1].decode()
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
