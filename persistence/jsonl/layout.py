"""Where things lie: `<root>/--<slug(cwd)>--/<enc(id)>/session.jsonl` and what stands beside it.

Pure path arithmetic (session-is-one-folder); touches no disk.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from persistence.names import MAX_NAME, encode_id, escape_unsafe

LOG_NAME = "session.jsonl"
SIDECAR_NAME = "session.crc"
LOCK_NAME = "writer.lock"
PID_NAME = "writer.pid"
INDEX_NAME = "index.jsonl"
INDEX_LOCK_NAME = "index.lock"
TEMP_SUFFIX = ".tmp"

# A session without a working directory. No slug gives this name: buckets of slugs start with "--".
NO_CWD_BUCKET = "_no-cwd"

_MAX_SLUG = MAX_NAME - 4  # a name less the four dashes around it

_SEPARATORS = re.compile(r"[/\\:]+")


@dataclass(frozen=True, slots=True)
class SessionPaths:
    """Every path of one session; absolute strings."""

    bucket: str
    directory: str

    @property
    def log(self) -> str:
        """The log itself."""
        return f"{self.directory}/{LOG_NAME}"

    @property
    def sidecar(self) -> str:
        """The checksums of the log (batches-are-checksummed)."""
        return f"{self.directory}/{SIDECAR_NAME}"

    @property
    def lock(self) -> str:
        """The file the writer lock is on (lock-is-held-by-kernel)."""
        return f"{self.directory}/{LOCK_NAME}"

    @property
    def pid(self) -> str:
        """The pid of the lock's holder, for messages only."""
        return f"{self.directory}/{PID_NAME}"

    @property
    def temp(self) -> str:
        """A log that is being written for the first time."""
        return f"{self.directory}/{LOG_NAME}{TEMP_SUFFIX}"

    @property
    def root(self) -> str:
        """The store's directory."""
        return self.bucket.rpartition("/")[0]

    @property
    def bucket_name(self) -> str:
        """The last part of the bucket's path."""
        return self.bucket.rpartition("/")[2]

    @property
    def directory_name(self) -> str:
        """The last part of the session directory's path: the encoded id."""
        return self.directory.rpartition("/")[2]

    @property
    def key(self) -> str:
        """The session's place relative to the root: `<bucket>/<enc(id)>`."""
        return f"{self.bucket_name}/{self.directory_name}"


def session_paths(root: str, session_id: str, cwd: str | None) -> SessionPaths:
    """Return the paths of a session.

    Raises:
        InvalidSessionIdError: The id cannot name a directory.
    """
    return paths_in_bucket(root, bucket_name(cwd), encode_id(session_id))


def paths_in_bucket(root: str, bucket: str, encoded_id: str) -> SessionPaths:
    """Return the paths of a session whose bucket and directory names are known."""
    return SessionPaths(f"{root}/{bucket}", f"{root}/{bucket}/{encoded_id}")


def bucket_name(cwd: str | None) -> str:
    """Return the directory name that groups the sessions of one working directory."""
    return NO_CWD_BUCKET if cwd is None else f"--{slug(cwd)}--"


def is_bucket(name: str) -> bool:
    """Tell whether a name under the root is one of a bucket."""
    return name == NO_CWD_BUCKET or (name.startswith("--") and name.endswith("--"))


def slug(cwd: str) -> str:
    """Return a readable name for a path; several paths may share it."""
    dashed = _SEPARATORS.sub("-", cwd)
    return escape_unsafe(dashed).lstrip("-")[:_MAX_SLUG] or "root"
