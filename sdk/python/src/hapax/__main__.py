"""Commands: ``python -m hapax migrate URL`` and ``python -m hapax schema``."""

from __future__ import annotations

import argparse
import sys

from . import __version__, schema


def main() -> None:
    """Run a command."""
    parser = argparse.ArgumentParser(prog="python -m hapax", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    migrate = commands.add_parser("migrate", help="create or upgrade the tables of a database")
    migrate.add_argument("url", help="such as postgres://shop_owner@localhost/shop")
    commands.add_parser("schema", help="print the SQL for an empty database, for psql")
    arguments = parser.parse_args()
    if arguments.command == "schema":
        sys.stdout.write(schema.printed())
        return
    try:
        applied = schema.migrate(arguments.url)
    except schema.SchemaError as error:
        sys.exit(str(error))
    names = ", ".join(f"{one.version:04} {one.name}" for one in applied)
    sys.stdout.write(f"applied: {names}\n" if names else "nothing is missing\n")


if __name__ == "__main__":
    main()
