"""Ledger of JSON Lines, which are flushed to disk before the response is sent."""

import json
import os
import time


class Ledger:
    """Appends lines. An incomplete last line, which a crash may leave, is cut off at the next start."""

    def __init__(self, path):
        self.lines = []
        self._file = open(path, "a+b")
        self._file.seek(0)
        complete = 0
        for line in self._file.read().splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            self.lines.append(json.loads(line))
            complete += len(line)
        self._file.truncate(complete)

    def write(self, sync=True, **line):
        line.setdefault("at", time.time_ns())
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        if sync:
            os.fdatasync(self._file.fileno())
