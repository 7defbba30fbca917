"""The states in which a power cut may leave a `SimulatedDisk`.

What was synced is there. Of everything else any part may be:

- of a file's unsynced writes and cuts any subset, and one of the writes torn: cut at a byte, its
  size on the medium but NULs in place of its end, or some of its sectors missing between others;
- of the changes of names any subset, each whole.

Where that is more than asked for, a random choice is made: it always holds the state with nothing
of it and that with all of it, and else prefers states in which a single file is odd.
"""

from __future__ import annotations

import random
from itertools import chain, islice, product
from math import prod
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from persistence.testing.simulated_disk import Cut, DiskImage, File, Written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from persistence.testing.simulated_disk import Directory, FileChange, Node, SimulatedDisk

# Real sectors have 512 bytes or more. Smaller ones let short test data tear in more ways.
SECTOR = 64
# Up to so many unsynced changes every subset of them is a state of its own; beyond it some are.
_ALL_SUBSETS = 5
_MORE_SUBSETS = 24
# Among so many any may be torn, among more only the last one that arrives.
_ANY_TORN = 2
# A write up to this size is cut at every byte, a longer one at sectors and at some bytes.
_EVERY_BYTE = 600
_SOME_BYTES = 100
_ALL_HOLES = 4
_MORE_HOLES = 24

Piece: TypeAlias = tuple[int, int]
T = TypeVar("T")


_Unsynced: TypeAlias = tuple[bytes, tuple["FileChange", ...]]


class _Tree(NamedTuple):
    """One state of the names; the bytes are still open."""

    directories: tuple[tuple[str, int], ...]
    files: tuple[tuple[str, File], ...]


class DiskStates:
    """Enumerates states; the same seed makes the same choices.

    Args:
        sector: Bytes that reach the medium together or not at all.
        holes: Let sectors in the middle of a write be missing. File systems that write the size
            after the bytes, as ext4 does by default, leave none.
        ordered_names: Only prefixes of the changes of names survive, as on a file system with one
            journal.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        sector: int = SECTOR,
        holes: bool = True,
        ordered_names: bool = False,
    ) -> None:
        self._random = random.Random(seed)  # noqa: S311 - choices, not secrets
        self._sector = sector
        self._has_holes = holes
        self._ordered_names = ordered_names
        # Of each file, what was asked last; most points find most files unchanged.
        self._known: dict[int, tuple[_Unsynced, list[bytes]]] = {}

    def images(self, disk: SimulatedDisk, limit: int) -> Iterator[DiskImage]:
        """Yield about `limit` states at most that a power cut may leave now, some perhaps twice."""
        trees = self._trees(disk)
        quota = max(limit // len(trees), 2)
        for tree in trees:
            files = list({file.number: file for _, file in tree.files}.values())
            options = [self._file_states(file) for file in files]
            for contents in self._choices(options, quota):
                data = dict(zip((file.number for file in files), contents, strict=True))
                named = tuple((path, file.number, data[file.number]) for path, file in tree.files)
                yield DiskImage(tree.directories, named)

    def _choices(
        self, options: Sequence[Sequence[bytes]], quota: int
    ) -> Iterator[tuple[bytes, ...]]:
        if prod(map(len, options)) <= quota:
            yield from product(*options)
            return
        extremes = (tuple(states[0] for states in options), tuple(states[-1] for states in options))
        yield from extremes
        single = [(base, k, state) for base in extremes for k in range(len(options))
                  for state in options[k][1:-1]]  # fmt: skip
        self._random.shuffle(single)
        for base, k, state in islice(single, quota // 2):
            yield (*base[:k], state, *base[k + 1 :])
        for _ in range(quota - quota // 2):
            yield tuple(self._random.choice(states) for states in options)

    def _trees(self, disk: SimulatedDisk) -> list[_Tree]:
        trees: dict[_Tree, None] = {}
        for groups in self._subsets(disk.renamed, ordered=self._ordered_names):
            names: dict[Directory, dict[str, Node | None]] = {}
            for change in chain.from_iterable(groups):
                of_directory = names.setdefault(change.directory, {**change.directory.durable})
                of_directory[change.name] = change.node
            trees[_walk(disk.root, names)] = None
        return list(trees)

    def _file_states(self, file: File) -> list[bytes]:
        """Return what a file may hold: first what is durable, last what programs saw."""
        unsynced = (file.durable, tuple(file.unsynced))
        known, states = self._known.get(file.number, (None, []))
        if known != unsynced:
            last = bytes(file.data)
            found = dict.fromkeys([file.durable, *self._torn_states(*unsynced)])
            found.pop(last, None)
            states = [*found, last]
            self._known[file.number] = (unsynced, states)
        return states

    def _torn_states(self, durable: bytes, unsynced: Sequence[FileChange]) -> Iterator[bytes]:
        for changes in self._subsets(unsynced):
            whole = durable
            for position, change in enumerate(changes):
                is_last = position == len(changes) - 1
                if isinstance(change, Written) and (is_last or len(unsynced) <= _ANY_TORN):
                    for torn in self._torn(whole, change):
                        yield _applied(torn, changes[position + 1 :])
                whole = _applied(whole, (change,))
            yield whole

    def _torn(self, before: bytes, change: Written) -> Iterator[bytes]:
        """Yield what one write may leave when only part of it arrives."""
        size = len(change.data)
        for stop in self._cuts(change):
            pieces = ((0, stop),)
            yield _pieces(before, change, pieces, stop)
            yield _pieces(before, change, pieces, size)
        yield _pieces(before, change, (), size)
        for sectors in self._holes([] if not self._has_holes else self._sectors(change)):
            yield _pieces(before, change, sectors, size)

    def _cuts(self, change: Written) -> Iterable[int]:
        size = len(change.data)
        if size <= _EVERY_BYTE:
            return range(1, size)
        some = (self._random.randrange(1, size) for _ in range(_SOME_BYTES))
        return sorted({*(stop for _, stop in self._sectors(change)[:-1]), *some})

    def _sectors(self, change: Written) -> list[Piece]:
        """Return the pieces of a write that lie in one sector each, relative to its start."""
        size = len(change.data)
        first = self._sector - change.offset % self._sector
        ends = [*range(first, size, self._sector), size]
        return list(zip([0, *ends[:-1]], ends, strict=True))

    def _holes(self, sectors: Sequence[Piece]) -> Iterator[tuple[Piece, ...]]:
        if len(sectors) <= _ALL_HOLES:
            kept = product((False, True), repeat=len(sectors))
        else:
            kept = (self._coins(len(sectors)) for _ in range(_MORE_HOLES))  # type: ignore[assignment]
        for flags in kept:
            yield tuple(sector for sector, flag in zip(sectors, flags, strict=True) if flag)

    def _subsets(self, items: Sequence[T], *, ordered: bool = False) -> Iterator[Sequence[T]]:
        count = len(items)
        for stop in range(count + 1):
            yield items[:stop]
        if ordered:
            return
        if count <= _ALL_SUBSETS:
            choices = list(product((False, True), repeat=count))
        else:
            choices = [self._coins(count) for _ in range(_MORE_SUBSETS)]
            choices += [
                tuple(other != skipped for other in range(count)) for skipped in range(count)
            ]
        for flags in choices:
            yield [item for item, flag in zip(items, flags, strict=True) if flag]

    def _coins(self, count: int) -> tuple[bool, ...]:
        return tuple(self._random.random() < 0.5 for _ in range(count))


def synced_image(disk: SimulatedDisk) -> DiskImage:
    """Return the state that a power cut leaves at worst: what is durable and nothing else."""
    tree = _walk(disk.root, {})
    return DiskImage(tree.directories, tuple((p, f.number, f.durable) for p, f in tree.files))


def cached_image(disk: SimulatedDisk) -> DiskImage:
    """Return the state that other programs see, and that a crash of this one leaves."""
    tree = _walk(disk.root, None)
    return DiskImage(tree.directories, tuple((p, f.number, bytes(f.data)) for p, f in tree.files))


def _walk(root: Directory, changed: dict[Directory, dict[str, Node | None]] | None) -> _Tree:
    """Return the tree of the durable names but for the changed ones; None for that of the cache."""
    directories: list[tuple[str, int]] = [("/", root.number)]
    files: list[tuple[str, File]] = []
    waiting = [("", root)]
    while waiting:
        path, directory = waiting.pop()
        names: Mapping[str, Node | None] = (
            directory.names if changed is None else changed.get(directory, directory.durable)
        )
        for name, node in sorted(names.items()):
            if isinstance(node, File):
                files.append((f"{path}/{name}", node))
            elif node is not None:
                directories.append((f"{path}/{name}", node.number))
                waiting.append((f"{path}/{name}", node))
    return _Tree(tuple(directories), tuple(files))


def _applied(data: bytes, changes: Iterable[FileChange]) -> bytes:
    for change in changes:
        if isinstance(change, Cut):
            data = data[: change.size].ljust(change.size, b"\0")
        else:
            data = _pieces(data, change, ((0, len(change.data)),), len(change.data))
    return data


def _pieces(before: bytes, change: Written, pieces: Iterable[Piece], size: int) -> bytes:
    """Return a file after a write of which only some pieces, but the size up to `size`, arrived."""
    data = bytearray(before.ljust(change.offset + size, b"\0"))
    for start, stop in pieces:
        data[change.offset + start : change.offset + stop] = change.data[start:stop]
    return bytes(data)
