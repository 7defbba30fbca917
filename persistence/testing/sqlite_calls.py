"""Stands before every call by which this process changes files: SQLite's own, and Python's.

SQLite's come through the table of system calls of its `unix` VFS, which is there to be replaced in
tests (https://www.sqlite.org/c3ref/vfs.html, xSetSystemCall): the library is the product's own. Its
syncs and locks are not among them. Neither changes what a later process finds after a kill; what
power cuts do is not asked here.
"""

import _sqlite3
import ctypes
import os
import sys
from collections.abc import Callable
from typing import Any, Protocol

Original = Callable[..., int]


class Watcher(Protocol):
    """Is asked before each call."""

    def __call__(self, name: str, write: Callable[[float], None] | None) -> int:
        """Return 0 to let the call happen, or the `errno` that it fails with.

        Args:
            name: Of the system call.
            write: Writes the given part of what a write would write.
        """
        ...


class _Vfs(ctypes.Structure):
    """See https://www.sqlite.org/c3ref/vfs.html."""

    _fields_ = [
        ("version", ctypes.c_int),
        ("file_size", ctypes.c_int),
        ("longest_path", ctypes.c_int),
        *((name, ctypes.c_void_p) for name in ("next", "name", "data")),
        *((f"method_{number}", ctypes.c_void_p) for number in range(12)),
        ("current_time_64", ctypes.c_void_p),
        ("set_system_call", ctypes.c_void_p),
        ("get_system_call", ctypes.c_void_p),
        ("next_system_call", ctypes.c_void_p),
    ]


_SET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_GET = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)

_WRITE = (ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
_CALLS: dict[str, tuple[Any, ...]] = {
    "open": (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_int),
    "write": _WRITE,
    "pwrite": (*_WRITE, ctypes.c_int64),
    "pwrite64": (*_WRITE, ctypes.c_int64),
    "ftruncate": (ctypes.c_int, ctypes.c_int, ctypes.c_int64),
    "fallocate": (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64),
    "unlink": (ctypes.c_int, ctypes.c_char_p),
}
"""Result and arguments of each call that changes files."""

_EVENTS = {"os.mkdir", "os.rmdir", "os.rename", "os.remove", "os.link", "os.chmod", "os.truncate"}

# What SQLite calls must live as long as the process does.
_kept: list[Any] = []


def _vfs() -> _Vfs | None:
    for library in (getattr(_sqlite3, "__file__", None), None):
        try:
            find = ctypes.CDLL(library).sqlite3_vfs_find
        except (AttributeError, OSError):
            continue
        find.restype = ctypes.POINTER(_Vfs)
        found = find(None)
        if found and found.contents.version >= 3 and found.contents.set_system_call:
            vfs: _Vfs = found.contents
            return vfs
    return None


def can_watch() -> bool:
    """Tell whether this Python's SQLite lets itself be watched; one that is linked in may not."""
    return _vfs() is not None


def watch(root: str, watcher: Watcher) -> None:
    """Ask `watcher` from now on; for Python's own calls only below `root`.

    Raises:
        RuntimeError: This Python's SQLite cannot be watched.
    """
    vfs = _vfs()
    if vfs is None:
        msg = "the system calls of this Python's SQLite cannot be replaced"
        raise RuntimeError(msg)
    for name, signature in _CALLS.items():
        pointer = _GET(vfs.get_system_call)(ctypes.addressof(vfs), name.encode())
        if pointer:
            kind = ctypes.CFUNCTYPE(*signature, use_errno=True)
            replaced = kind(_watched(name, kind(pointer), watcher))
            _kept.append(replaced)
            address = ctypes.cast(replaced, ctypes.c_void_p)
            _SET(vfs.set_system_call)(ctypes.addressof(vfs), name.encode(), address)

    def audit(event: str, args: tuple[Any, ...]) -> None:
        creates = event == "open" and isinstance(args[2], int) and args[2] & os.O_CREAT
        if (creates or event in _EVENTS) and str(args[0]).startswith(root):
            code = watcher("create" if creates else event, None)
            if code:
                raise OSError(code, os.strerror(code))

    sys.addaudithook(audit)


def _watched(name: str, original: Original, watcher: Watcher) -> Original:
    def call(*args: Any) -> int:
        if name == "open" and not args[1] & os.O_CREAT:
            return _with_errno(original, args)
        write = None
        if name.endswith(("write", "write64")):

            def write(part: float) -> None:
                original(args[0], args[1], int(args[2] * part), *args[3:])

        code = watcher(name, write)
        if not code:
            return _with_errno(original, args)
        ctypes.set_errno(code)
        # The one that returns its error.
        return code if name == "fallocate" else -1

    return call


def _with_errno(original: Original, args: tuple[Any, ...]) -> int:
    ctypes.set_errno(0)
    return original(*args)
