"""The built archives, and the start of the README in an empty environment."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def test_the_archives_contain_the_package_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "hapax/py.typed" in names
    assert "hapax/migrations/0015_sql_contract_2.sql" in names
    roots = {name.split("/", 1)[0] for name in names}
    assert roots == {"hapax", "hapax-0.1.0.dist-info"}
    assert not [name for name in names if name.endswith((".pyc", ".rs"))]
    metadata = zipfile.ZipFile(wheel).read("hapax-0.1.0.dist-info/METADATA").decode()
    required = re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)
    assert [line for line in required if "extra ==" not in line] == []
    assert "Requires-Python: >=3.10" in metadata
    (source,) = dist.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        members = archive.getnames()
    assert "hapax-0.1.0/src/hapax/migrations/0001_idempotency_keys.sql" in members
    assert "hapax-0.1.0/LICENSE-MIT" in members
    assert not [name for name in members if "/tests/" in name]


def blocks(kind: str) -> list[str]:
    """The blocks of the README's start, in order."""
    readme = (ROOT / "README.md").read_text()
    start = readme.split("## Five-minute start\n")[1].split("\n## ")[0]
    found: list[str] = re.findall(rf"^```{kind}\n(.*?)^```$", start, re.MULTILINE | re.DOTALL)
    return found


def test_the_lines_of_the_readme_run_in_an_empty_environment(
    dist: Path, template: str, database: str, tmp_path: Path
) -> None:
    import psycopg

    from .conftest import admin, url_of

    (wheel,) = dist.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    (program,) = blocks("python")
    (tmp_path / "shop.py").write_text(program)
    (configuration,) = blocks("toml")
    empty = f"{template}_readme"
    admin(f"CREATE DATABASE {empty}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    lines = "set -eu\n" + "".join(blocks("sh"))
    for line, instead in (
        ("hapax[fastapi,psycopg]", f"hapax[fastapi,psycopg] @ file://{wheel}"),
        ("postgres://postgres@localhost/shop", url_of(empty)),
        ("8000", str(port)),
    ):
        assert line in lines
        lines = lines.replace(line, instead)
    assert "8000" in configuration
    (tmp_path / "hapax.toml").write_text(configuration.replace("8000", str(port)))
    # The relay, as it was built beside the package.
    relay = os.environ.get("HAPAX_PROGRAM") or shutil.which("hapax")
    assert relay, "set HAPAX_PROGRAM to the program of Hapax, which delivers the event"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/hapax").symlink_to(relay)
    path = f"{tmp_path / 'venv/bin'}:{tmp_path / 'bin'}:{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment.pop("PYTHONPATH", None)
    shell = subprocess.Popen(
        ["sh", "-c", lines],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert shell.stdout is not None
        out = ""
        while not re.search(rf"^{UUID}\n", out, re.MULTILINE):
            line = shell.stdout.read(1)
            assert line, f"the lines have ended: {out}"
            out += line
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
    with psycopg.connect(url_of(empty)) as connection:
        orders = connection.execute("SELECT id::text, amount FROM shop_order").fetchall()
        mails = connection.execute("SELECT order_id::text FROM mail").fetchall()
        accepted = connection.execute("SELECT consumer FROM hapax.inbox_message").fetchall()
    admin(f"DROP DATABASE {empty} WITH (FORCE)")
    statuses = re.findall(r"^HTTP/1.1 (\d+)", out, re.MULTILINE)
    assert statuses == ["201", "201", "409"]
    assert "idempotency-status: stored" in out
    assert "idempotency-status: replayed" in out
    assert "CONFLICT.idempotency.payload_mismatch" in out
    first, second = re.findall(r'^(\{"id":.*?\})', out, re.MULTILINE)
    assert first == second
    (order,) = orders
    assert order == (json.loads(first)["id"], 5)
    assert mails == [order[:1]]
    assert accepted == [("mailer",)]
