"""From a store's specification to its backend.

It is `jsonl:PATH`, `sqlite:PATH`, `memory:`, or has a plugin's scheme.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from persistence.errors import UnknownStoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from persistence.files import Files
    from persistence.storage import StorageBackend

ENTRY_POINT_GROUP = "acp_session_server.stores"


def open_backend(spec: str, *, files: Files | None = None, pack: bool = True) -> StorageBackend:
    """Open the store that `spec` names: a scheme, a colon and, verbatim, a path.

    Rule: store-paths-are-verbatim.

    Other schemes are looked up among the entry points of `acp_session_server.stores`; each names a
    callable that takes the path and returns a backend.

    Args:
        spec: For instance `jsonl:/var/lib/sessions`.
        files: The file layer of the JSONL backend; the operating system's by default.
        pack: Write runs of deltas as packed rows.

    Raises:
        UnknownStoreError: No backend has this scheme.
        PersistenceError: The place cannot hold a store.
    """
    scheme, colon, path = spec.partition(":")
    if colon and scheme == "memory" and not path:
        from persistence.memory import MemoryBackend  # noqa: PLC0415 - a server needs one backend

        return MemoryBackend()
    if colon and scheme == "jsonl" and path:
        from persistence.jsonl import JsonlBackend  # noqa: PLC0415 - as above

        return JsonlBackend(path, files=files, pack=pack)
    if colon and scheme == "sqlite" and path:
        from persistence.sqlite import SqliteBackend  # noqa: PLC0415 - as above

        return SqliteBackend(path, pack=pack)
    return _plugin(spec, scheme)(path)


def _plugin(spec: str, scheme: str) -> Callable[[str], StorageBackend]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - rarely needed, slow to import

    plugins = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if scheme not in plugins:
        raise UnknownStoreError(spec, ("jsonl:PATH", "sqlite:PATH", "memory:", *sorted(plugins)))
    factory: Callable[[str], StorageBackend] = plugins[scheme].load()
    return factory
