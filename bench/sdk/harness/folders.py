"""The folders of the sources and of everything that a run creates."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BENCH = ROOT / "bench"
SOURCES = BENCH / "sdk"
SERVICES = SOURCES / "services"
TARGET = ROOT / "target/bench-sdk"
NODE = TARGET / "node"
PYTHON = TARGET / "python"
LOGS = TARGET / "logs"
