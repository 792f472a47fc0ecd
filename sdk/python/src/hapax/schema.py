"""The tables and functions of Hapax: creates and upgrades them.

The record of what was applied is the same as that of the services in Rust and of the command
``hapax migrate``, so any of them can do the next upgrade.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from .core.fingerprint import digest

NAMESPACE = "hapax"
LOCK = "SELECT pg_advisory_xact_lock(7521887012346654821)"
RECORD = """
CREATE SCHEMA IF NOT EXISTS hapax;
CREATE TABLE IF NOT EXISTS hapax.migration (
    namespace  text NOT NULL,
    version    integer NOT NULL,
    name       text NOT NULL,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (namespace, version)
)"""


class SchemaError(RuntimeError):
    """The schema of a database is newer than the package, or was changed."""


@dataclass(frozen=True)
class Migration:
    """One migration.

    Attributes:
        version: its number, from 1.
        name: its name.
        sql: its statements.
    """

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """The hash by which a change of an applied migration is noticed."""
        return digest(1, [self.name.encode(), self.sql.encode()]).hex()


def migrations() -> Iterator[Migration]:
    """Return all migrations, in order."""
    folder = files("hapax").joinpath("migrations")
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".sql"):
            version, _, name = file.name.removesuffix(".sql").partition("_")
            yield Migration(int(version), name, file.read_text("utf-8"))


def printed() -> str:
    """Return the statements that bring an empty database to this version, in one transaction."""
    parts = [f"BEGIN;\n{RECORD.strip()};\n"]
    for one in migrations():
        parts.append(
            f"\n-- {one.version:04} {one.name}\n{one.sql.rstrip()}\n"
            "INSERT INTO hapax.migration (namespace, version, name, checksum)\n    "
            f"VALUES ('{NAMESPACE}', {one.version}, '{one.name}', '{one.checksum}');\n"
        )
    parts.append("\nCOMMIT;\n")
    return "".join(parts)


def migrate(url: str) -> list[Migration]:
    """Apply the missing migrations in one transaction, and return them. It needs psycopg.

    Args:
        url: the database, as a role that may create tables.

    Raises:
        SchemaError: the schema is newer than the package, or was changed.
    """
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute(LOCK)
        connection.execute(RECORD.encode())
        applied = connection.execute(
            "SELECT version, checksum FROM hapax.migration WHERE namespace = %s", (NAMESPACE,)
        ).fetchall()
        missing = _missing(dict(applied))
        for one in missing:
            connection.execute(one.sql.encode())
            connection.execute(
                "INSERT INTO hapax.migration (namespace, version, name, checksum) "
                "VALUES (%s, %s, %s, %s)",
                (NAMESPACE, one.version, one.name, one.checksum),
            )
    return missing


def _missing(applied: dict[Any, Any]) -> list[Migration]:
    every = list(migrations())
    newest = max(applied, default=0)
    if newest > len(every):
        raise SchemaError(
            f"the schema has version {newest} and this package knows {len(every)}: upgrade the "
            "package"
        )
    changed = [one for one in every if applied.get(one.version, one.checksum) != one.checksum]
    if changed:
        raise SchemaError(f"migration {changed[0].version} was applied with other content")
    return [one for one in every if one.version not in applied]
