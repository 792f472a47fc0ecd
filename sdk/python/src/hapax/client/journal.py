"""The journal: the keys under which operations were sent, which survive a crash of the client.

A client that dies after it has sent a request does not know whether the request had an effect. It
may send it again, but only under the same key. So the key is on disk before the first byte is sent,
and is removed when the outcome is known. The file has the format of the client in Rust.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hapax.core.fingerprint import digest

BYTES_SHORTEN = 1024 * 1024
BYTES_MAX = 64 * 1024 * 1024
LOCK = 5.0
CLOCK_AHEAD_MS = 60_000


class JournalError(RuntimeError):
    """The journal cannot be read or written. Nothing was sent."""


@dataclass(frozen=True)
class Entry:
    """The identity of an operation: a request is the same operation if all members are equal."""

    method: str
    url: str
    body: bytes
    name: str | None = None

    def record(self) -> dict[str, Any]:
        """Return the members of a line."""
        record: dict[str, Any] = {} if self.name is None else {"name": self.name}
        hashed = digest(1, [self.body]).hex()
        return record | {"method": self.method, "url": self.url, "body": hashed}


@dataclass(frozen=True)
class Begun:
    """The key of an operation that starts or is continued.

    Attributes:
        key: the key.
        is_resumed: whether an earlier run may have sent it.
        age: the seconds since it was recorded first; ``None`` if the clock was set back.
    """

    key: str
    is_resumed: bool = False
    age: float | None = 0.0


class Journal(Protocol):
    """Where keys are recorded before anything is sent under them."""

    def begin(self, entry: Entry, fresh: str) -> Begun:
        """Record that ``entry`` is sent under ``fresh``, or under the key of its unfinished run.

        The record must survive a crash of the machine when this returns.
        """

    def finish(self, key: str) -> None:
        """Remove an operation whose outcome is known."""

    def withdraw(self, key: str) -> None:
        """Remove an operation that had no effect, unless another run continues it."""


class FileJournal:
    """A journal in a file, which several processes may share.

    Args:
        path: the file. It is created when it is needed for the first time, and ``path.lock``
            beside it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def begin(self, entry: Entry, fresh: str) -> Begun:
        """See :meth:`Journal.begin`."""
        with self._opened() as (file, lines):
            wanted = entry.record()
            same = [line for line in lines.open if _identity(line) == wanted]
            now = _now_ms()
            if same:
                key = same[0]["key"]
                if lines.is_shared(key):
                    os.fsync(file)
                else:
                    # The process that began it may still run, and must not remove the key.
                    _append(file, {"state": "open", "key": key, "at_ms": now, **wanted})
                return Begun(key, True, lines.age(same[0], now))
            file = self._shortened(file, lines)
            _append(file, {"state": "open", "key": fresh, "at_ms": now, **wanted})
            return Begun(fresh)

    def finish(self, key: str) -> None:
        """See :meth:`Journal.finish`."""
        with self._opened() as (file, _):
            _append(file, {"state": "done", "key": key, "at_ms": _now_ms()})

    def withdraw(self, key: str) -> None:
        """See :meth:`Journal.withdraw`."""
        with self._opened() as (file, lines):
            if not lines.is_shared(key):
                _append(file, {"state": "done", "key": key, "at_ms": _now_ms()})

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[int, _Lines]]:
        try:
            with _locked(self._path.with_name(self._path.name + ".lock")):
                file = _open(self._path)
                try:
                    _sync_folder(self._path)
                    yield file, _read(file, self._path)
                finally:
                    os.close(file)
        except OSError as error:
            raise JournalError(f"the journal {self._path} cannot be used: {error}") from error

    def _shortened(self, file: int, lines: _Lines) -> int:
        """Remove finished entries if that saves enough space. Return the file to append to."""
        if lines.size < BYTES_SHORTEN:
            return file
        other = self._path.with_name(self._path.name + ".new")
        new = _open(other, os.O_TRUNC)
        try:
            for line in lines.open:
                os.write(new, _line(line))
            os.fsync(new)
            other.replace(self._path)
            _sync_folder(self._path)
            # The caller closes `file`, which becomes the new one.
            os.dup2(new, file)
        finally:
            os.close(new)
        return file


@dataclass
class _Lines:
    open: list[dict[str, Any]]
    newest_ms: int
    size: int

    def is_shared(self, key: str) -> bool:
        """Whether another run has continued under a key."""
        return len([line for line in self.open if line["key"] == key]) > 1

    def age(self, line: dict[str, Any], now_ms: int) -> float | None:
        """Return the age of a line in seconds; ``None`` if its time is in the future."""
        at_ms = int(line["at_ms"])
        if at_ms > now_ms + CLOCK_AHEAD_MS:
            return None
        return max(0, max(now_ms, self.newest_ms) - at_ms) / 1000


def _read(file: int, path: Path) -> _Lines:
    size = os.fstat(file).st_size
    if size > BYTES_MAX:
        raise JournalError(f"{path} is {size} bytes long, at most {BYTES_MAX} are allowed")
    with os.fdopen(os.dup(file), "rb") as reader:
        reader.seek(0)
        text = reader.read()
    whole = _whole(text)
    if whole < len(text):
        os.truncate(file, whole)
    lines = _Lines([], -(2**63), size)
    for number, line in enumerate(text[:whole].split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            state, key, at_ms = record["state"], record["key"], int(record["at_ms"])
        except (ValueError, KeyError, TypeError) as error:
            raise JournalError(f"line {number} of the journal is not a valid record") from error
        if state == "open":
            lines.open.append(record)
        else:
            lines.open = [known for known in lines.open if known["key"] != key]
        lines.newest_ms = max(lines.newest_ms, at_ms)
    return lines


def _whole(text: bytes) -> int:
    """Return the length without a last line that was not written completely."""
    last = text.rfind(b"\n")
    if last < 0:
        return 0
    start = text.rfind(b"\n", 0, last) + 1
    return start if b"\0" in text[start:last] else last + 1


def _identity(line: dict[str, Any]) -> dict[str, Any]:
    names = ("name", "method", "url", "body")
    return {name: line[name] for name in names if line.get(name) is not None}


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def _append(file: int, record: dict[str, Any]) -> None:
    os.lseek(file, 0, os.SEEK_END)
    rest = _line(record)
    while rest:
        rest = rest[os.write(file, rest) :]
    os.fsync(file)


def _open(path: Path, flags: int = 0) -> int:
    # Only the owner can read it, because URLs may contain secrets.
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)


def _sync_folder(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file. The operating system releases it when the process ends."""
    try:
        import fcntl
    except ImportError as error:  # pragma: no cover - Windows
        raise JournalError("a file journal needs the file locks of a POSIX system") from error
    lock = _open(path)
    try:
        until = time.monotonic() + LOCK
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    message = f"another process has held {path} for {LOCK:.0f} s"
                    raise JournalError(message) from None
                time.sleep(0.005)
        yield
    finally:
        os.close(lock)
