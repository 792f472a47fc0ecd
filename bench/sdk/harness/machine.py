"""Facts about the machine, the sources and the installed packages."""

import json
import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from .folders import NODE, ROOT
from .variants import Framework


def machine() -> str:
    """Return the cores, the model of the processor and the memory."""
    model = _field(Path("/proc/cpuinfo"), "model name") or platform.processor()
    memory = _field(Path("/proc/meminfo"), "MemTotal") or "unknown memory"
    return f"{os.cpu_count()} cores, {model}, {memory}; {platform.system()} {platform.release()}"


def load() -> str:
    """Return the load averages."""
    return Path("/proc/loadavg").read_text().strip()


def commit() -> str:
    """Return the commit of the sources, and whether they differ from it."""
    head = _output("git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD") or "unknown"
    is_changed = _output("git", "-C", str(ROOT), "status", "--porcelain") != ""
    return f"{head} with local changes" if is_changed else head


def languages() -> str:
    """Return the versions of the interpreters."""
    node = _output("node", "--version").removeprefix("v")
    return f"Node {node}, Python {platform.python_version()}"


def package(framework: Framework, name: str) -> str:
    """Return a package of a framework with its installed version."""
    if framework.language == "python":
        return f"{name} {version(name)}"
    manifest = json.loads((NODE / "node_modules" / name / "package.json").read_text())
    return f"{name} {manifest['version']}"


def _field(path: Path, name: str) -> str | None:
    lines = (line.partition(":") for line in path.read_text().splitlines())
    return next((value.strip() for key, _, value in lines if key.strip() == name), None)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
