"""A file system in memory that knows what of it is on the medium and what only in the cache.

Implements `Files`. Under a backend it serves like any other; beside that it remembers, for each
file, which writes and cuts came after the last `sync`, and for the names, which changes no
`sync_dir` has made durable. `DiskStates` makes of that what a power cut may leave.

The model promises no more than POSIX does: a sync makes the bytes and the size of one file durable,
not its name; a change of names is atomic, and without `sync_dir` any of several may be lost.
Numbers of removed files are given out again, as real file systems do.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeAlias

from persistence.files import FileStat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from persistence.files import OpenMode

_DEVICE = 1
_ROOT_NUMBER = 2


class Written(NamedTuple):
    """Bytes that were written at an offset."""

    offset: int
    data: bytes


class Cut(NamedTuple):
    """A file that was cut, or stretched with NULs, to a size."""

    size: int


FileChange: TypeAlias = Written | Cut


class File:
    """A file's bytes as programs see them, and what of them is durable.

    Attributes:
        durable: What the last sync left on the medium.
        unsynced: What was done since, in order.
    """

    __slots__ = ("data", "durable", "number", "time", "unsynced")

    def __init__(self, number: int, data: bytes = b"") -> None:
        self.number = number
        self.data = bytearray(data)
        self.durable = data
        self.unsynced: list[FileChange] = []
        self.time = 0


class Directory:
    """A directory's names as programs see them, and those that are durable."""

    __slots__ = ("durable", "names", "number", "time")

    def __init__(self, number: int) -> None:
        self.number = number
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.time = 0


Node: TypeAlias = File | Directory


class NameChange(NamedTuple):
    """One name that was given or, with None, taken."""

    directory: Directory
    name: str
    node: Node | None


class DiskImage(NamedTuple):
    """Everything on a medium; files of the same number are one file under several names."""

    directories: tuple[tuple[str, int], ...]
    files: tuple[tuple[str, int, bytes], ...]


class SimulatedDisk:
    """See the module. Not thread-safe.

    Args:
        image: What is on the medium at first; an empty root by default.

    Attributes:
        before_change: Called with the name of each operation that changes something, before it
            does. What it sees is what a power cut at this moment would find.
        free: How many more bytes the disk takes; None for as many as you like.
        renamed: Groups of changes of names that are not durable; each group is atomic.
    """

    def __init__(self, image: DiskImage | None = None) -> None:
        self.root = Directory(_ROOT_NUMBER)
        self.before_change: Callable[[str], None] | None = None
        self.free: int | None = None
        self.renamed: list[tuple[NameChange, ...]] = []
        self._handles: dict[int, File] = {}
        self._next_handle = 3
        self._time = 0
        if image is not None:
            self._load(image)

    def open(self, path: str, mode: OpenMode) -> int:
        """See `Files.open`."""
        parent, name = self._place(path)
        node = parent.names.get(name)
        if node is None:
            if mode in {"read", "write"}:
                _fail(errno.ENOENT, path)
            self._changing("create")
            node = File(self._free_number())
            self._rename(NameChange(parent, name, node))
        elif mode == "create":
            _fail(errno.EEXIST, path)
        elif isinstance(node, Directory):
            _fail(errno.EISDIR, path)
        handle = self._next_handle
        self._next_handle += 1
        self._handles[handle] = node
        return handle

    def close(self, handle: int) -> None:
        """See `Files.close`."""
        if self._handles.pop(handle, None) is None:
            _fail(errno.EBADF)

    def read(self, handle: int, size: int, offset: int) -> bytes:
        """See `Files.read`."""
        return bytes(self._handles[handle].data[offset : offset + size])

    def write(self, handle: int, data: bytes | memoryview, offset: int) -> int:
        """See `Files.write`."""
        self._changing("write")
        return self._write(self._handles[handle], bytes(data), offset)

    def append(self, handle: int, data: bytes) -> int:
        """See `Files.append`."""
        self._changing("append")
        file = self._handles[handle]
        return self._write(file, data, len(file.data))

    def lock(self, handle: int) -> bool:
        """See `Files.lock`: nobody else has this disk."""
        return handle in self._handles

    def sync(self, handle: int) -> None:
        """See `Files.sync`."""
        self._changing("sync")
        file = self._handles[handle]
        if file.unsynced:
            file.durable = bytes(file.data)
            file.unsynced = []

    def truncate(self, handle: int, size: int) -> None:
        """See `Files.truncate`."""
        self._changing("truncate")
        file = self._handles[handle]
        self._resize(file, size)
        file.unsynced.append(Cut(size))

    def stat(self, path: str) -> FileStat:
        """See `Files.stat`."""
        return _status(self._node(path))

    def handle_stat(self, handle: int) -> FileStat:
        """See `Files.handle_stat`."""
        return _status(self._handles[handle])

    def link(self, source: str, target: str) -> None:
        """See `Files.link`."""
        node = self._node(source)
        parent, name = self._place(target)
        if name in parent.names:
            _fail(errno.EEXIST, target)
        self._changing("link")
        self._rename(NameChange(parent, name, node))

    def rename(self, source: str, target: str) -> None:
        """See `Files.rename`."""
        node = self._node(source)
        old_parent, old_name = self._place(source)
        parent, name = self._place(target)
        if isinstance(parent.names.get(name), Directory):
            _fail(errno.EISDIR, target)
        self._changing("rename")
        self._rename(NameChange(old_parent, old_name, None), NameChange(parent, name, node))

    def unlink(self, path: str) -> None:
        """See `Files.unlink`."""
        if isinstance(self._node(path), Directory):
            _fail(errno.EISDIR, path)
        self._changing("unlink")
        self._rename(NameChange(*self._place(path), None))

    def mkdir(self, path: str) -> None:
        """See `Files.mkdir`."""
        parent, name = self._place(path)
        if name in parent.names:
            _fail(errno.EEXIST, path)
        self._changing("mkdir")
        self._rename(NameChange(parent, name, Directory(self._free_number())))

    def rmdir(self, path: str) -> None:
        """See `Files.rmdir`."""
        if self._directory(path).names:
            _fail(errno.ENOTEMPTY, path)
        self._changing("rmdir")
        self._rename(NameChange(*self._place(path), None))

    def sync_dir(self, path: str) -> None:
        """See `Files.sync_dir`."""
        directory = self._directory(path)
        self._changing("sync_dir")
        kept = []
        for group in self.renamed:
            if all(change.directory is not directory for change in group):
                kept.append(group)
                continue
            for change in group:
                _apply(change, change.directory.durable)
        self.renamed = kept

    def list_dir(self, path: str) -> list[str]:
        """See `Files.list_dir`."""
        return list(self._directory(path).names)

    def forget_unsynced(self, handle: int) -> None:
        """Lose what a file owes the medium, as a kernel does whose fsync has failed.

        Programs still read it from the cache, and a later sync succeeds without writing it.
        """
        self._handles[handle].unsynced = []

    def _changing(self, operation: str) -> None:
        if self.before_change is not None:
            self.before_change(operation)

    def _rename(self, *changes: NameChange) -> None:
        self._time += 1
        for change in changes:
            _apply(change, change.directory.names)
            change.directory.time = self._time
        self.renamed.append(changes)

    def _write(self, file: File, data: bytes, offset: int) -> int:
        if self.free is not None:
            room = self.free + max(0, len(file.data) - offset)
            if data and room <= 0:
                _fail(errno.ENOSPC)
            data = data[:room]
        end = offset + len(data)
        self._resize(file, max(len(file.data), end))
        file.data[offset:end] = data
        file.unsynced.append(Written(offset, data))
        return len(data)

    def _resize(self, file: File, size: int) -> None:
        self._time += 1
        file.time = self._time
        grown = size - len(file.data)
        if self.free is not None:
            self.free -= grown
        if grown > 0:
            file.data += bytes(grown)
        else:
            del file.data[size:]

    def _node(self, path: str) -> Node:
        node: Node = self.root
        for name in path[1:].split("/") if path != "/" else ():
            if isinstance(node, File):
                _fail(errno.ENOTDIR, path)
            found = node.names.get(name)
            if found is None:
                _fail(errno.ENOENT, path)
            node = found
        return node

    def _directory(self, path: str) -> Directory:
        node = self._node(path)
        if isinstance(node, File):
            _fail(errno.ENOTDIR, path)
        return node

    def _place(self, path: str) -> tuple[Directory, str]:
        """Return the directory that holds, or would hold, a path, and the name in it."""
        parent, _, name = path.rpartition("/")
        return self._directory(parent or "/"), name

    def _free_number(self) -> int:
        used = {node.number for node in self._nodes()}
        number = _ROOT_NUMBER
        while number in used:
            number += 1
        return number

    def _nodes(self) -> Iterator[Node]:
        """Yield everything that programs or a power cut can still bring to light."""
        yield from self._handles.values()
        waiting: list[Node] = [self.root]
        waiting += [change.node for group in self.renamed for change in group if change.node]
        while waiting:
            node = waiting.pop()
            yield node
            if isinstance(node, Directory):
                waiting += [*node.names.values(), *node.durable.values()]

    def _load(self, image: DiskImage) -> None:
        files: dict[int, File] = {}
        for path, number in image.directories:
            if path != "/":
                self._put(path, Directory(number))
        for path, number, data in image.files:
            self._put(path, files.setdefault(number, File(number, data)))

    def _put(self, path: str, node: Node) -> None:
        parent, name = self._place(path)
        parent.names[name] = parent.durable[name] = node


def _apply(change: NameChange, names: dict[str, Node]) -> None:
    if change.node is None:
        names.pop(change.name, None)
    else:
        names[change.name] = change.node


def _status(node: Node) -> FileStat:
    if isinstance(node, File):
        return FileStat("file", _DEVICE, node.number, len(node.data), node.time, node.time)
    return FileStat("directory", _DEVICE, node.number, 0, node.time, node.time)


def _fail(code: int, path: str | None = None) -> NoReturn:
    raise OSError(code, os.strerror(code), path)
