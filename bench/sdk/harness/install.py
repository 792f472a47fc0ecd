"""Installation of the pinned packages, and of the packages that are measured."""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from .folders import NODE, PYTHON, SERVICES, TARGET

BUILD = TARGET / "build"
NPM = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-progress", "--loglevel=error"]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
# What builds and tools leave in the sources.
LEFT = shutil.ignore_patterns("node_modules", "dist", "build", "__pycache__", ".*_cache", ".venv")


def install(options: argparse.Namespace) -> Path:
    """Install everything, and return the interpreter of the virtual environment."""
    TARGET.mkdir(parents=True, exist_ok=True)
    archives = options.archives or _pack(options.sdk)
    _install_node(_archive(archives, ".tgz"))
    return _install_python(_archive(archives, ".whl"))


def _install_node(archive: Path) -> None:
    """Install the packages beside the services: Node looks for packages in the folder of a file."""
    NODE.mkdir(exist_ok=True)
    for source in (SERVICES / "node").iterdir():
        if source.is_file():
            shutil.copy(source, NODE)
    _once(NODE / "package-lock.json", NODE / "node_modules", lambda: _npm_ci(NODE))
    # Unpacked by hand, because npm would change the lock file. The package has no dependencies.
    package = NODE / "node_modules/hapax"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir()
    _run(["tar", "-xzf", archive, "-C", package, "--strip-components=1"])


def _install_python(wheel: Path) -> Path:
    python = PYTHON / "bin/python"
    requirements = SERVICES / "python/requirements.txt"

    def create() -> None:
        _run([sys.executable, "-m", "venv", "--clear", "--without-pip", PYTHON])
        _run([*PIP, "--python", python, "install", "--quiet", "--requirement", requirements])

    _once(requirements, PYTHON, create)
    reinstall = ["install", "--quiet", "--no-index", "--no-deps", "--force-reinstall"]
    _run([*PIP, "--python", python, *reinstall, wheel])
    return python


def _pack(sdk: Path) -> Path:
    """Pack both packages in copies of their sources, and return the folder of the archives."""
    archives = TARGET / "archives"
    shutil.rmtree(archives, ignore_errors=True)
    archives.mkdir()
    node, python = BUILD / "node", BUILD / "python"
    for language, copy in (("node", node), ("python", python)):
        _clear(copy)
        shutil.copytree(sdk / language, copy, ignore=LEFT, dirs_exist_ok=True)
    _once(node / "package-lock.json", node / "node_modules", lambda: _npm_ci(node))
    _run(["npm", "pack", "--silent", "--pack-destination", archives], node)
    _run([*PIP, "wheel", "--quiet", "--no-deps", "--wheel-dir", archives, python])
    return archives


def _clear(folder: Path) -> None:
    """Remove an earlier copy, except its installed packages."""
    for path in folder.iterdir() if folder.exists() else ():
        if path.is_file():
            path.unlink()
        elif path.name != "node_modules":
            shutil.rmtree(path)


def _npm_ci(folder: Path) -> None:
    _run(["npm", "ci", *NPM], folder)


def _archive(folder: Path, end: str) -> Path:
    found = sorted(folder.glob(f"*{end}"))
    if len(found) != 1:
        sys.exit(f"{folder}: expected one archive *{end}, found {len(found)}")
    return found[0].resolve()


def _once(packages: Path, folder: Path, create) -> None:
    """Create a folder, unless a complete one has the packages of this list."""
    mark = folder / "installed"
    wanted = packages.read_text()
    if mark.exists() and mark.read_text() == wanted:
        return
    create()
    mark.write_text(wanted)


def _run(command: list, folder: Path | None = None) -> None:
    # The output of tools is not that of this program.
    result = subprocess.run(list(map(str, command)), cwd=folder, stdout=sys.stderr, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with status {result.returncode}")
