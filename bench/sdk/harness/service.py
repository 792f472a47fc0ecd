"""A service: a process on a free port that is stopped at the end."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .folders import LOGS, NODE, PYTHON, SERVICES
from .variants import Framework

PATIENCE = 30.0
TICKS = os.sysconf("SC_CLK_TCK")


class Service:
    """A running service.

    Attributes:
        port: the port on which it listens.
    """

    def __init__(self, framework: Framework, variant: str, environment: dict[str, str]) -> None:
        self.port = _free_port()
        self._log = LOGS / f"{framework.name}-{variant}.log"
        if framework.language == "node":
            interpreter, folder = "node", NODE
        else:
            interpreter, folder = str(PYTHON / "bin/python"), SERVICES / "python"
        arguments = [argument.format(port=self.port) for argument in framework.command]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [interpreter, *arguments],
                cwd=folder,
                env={
                    **os.environ,
                    **environment,
                    "PORT": str(self.port),
                    "VARIANT": variant,
                    "NODE_ENV": "production",
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "PYTHONPATH": "",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Wait until the service accepts connections."""
        deadline = time.monotonic() + PATIENCE
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the service did not start:\n{self._log.read_text()}")
            time.sleep(0.02)

    def cpu_seconds(self) -> float:
        """Return the CPU time of the processes of the service, so far."""
        session = self._process.pid
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                # The fields after the name of the program, which may contain spaces.
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[3]) == session:
                    ticks += int(fields[11]) + int(fields[12])
        return ticks / TICKS

    def stop(self) -> None:
        """End the processes of the service."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)


@contextmanager
def services(framework: Framework, environment: dict[str, str]) -> Iterator[dict[str, Service]]:
    """Start the services of all variants of a framework, and stop them at the end."""
    LOGS.mkdir(exist_ok=True)
    running: dict[str, Service] = {}
    try:
        for variant in framework.variants:
            if variant.service not in running:
                running[variant.service] = Service(framework, variant.service, environment)
        for service in running.values():
            service.wait()
        yield running
    finally:
        for service in running.values():
            service.stop()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
