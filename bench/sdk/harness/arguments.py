"""The options of the command line."""

import argparse
import os
from pathlib import Path

from .folders import BENCH, ROOT, TARGET
from .variants import FRAMEWORKS

SECONDS = 3.0
ROUNDS = 5
SMOKE = ["express", "fastapi"]


def parse() -> argparse.Namespace:
    """Return the options. A whole run has the default time, rounds and frameworks."""
    parser = argparse.ArgumentParser(
        prog="bench/sdk/run", description="Measures the packages for TypeScript and Python."
    )
    names = [framework.name for framework in FRAMEWORKS]
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="time of each measurement [default: 3]"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds [default: 5]")
    parser.add_argument(
        "--only", action="append", choices=names, metavar="FRAMEWORK", help=", ".join(names)
    )
    parser.add_argument(
        "--smoke", action="store_true", help="one round of 1 s, with " + " and ".join(SMOKE)
    )
    parser.add_argument(
        "--postgres",
        metavar="URL",
        default=os.environ.get(
            "HAPAX_TEST_POSTGRES", "postgres://postgres@127.0.0.1:5432/postgres"
        ),
        help="server, as a role that may create databases [default: HAPAX_TEST_POSTGRES, or the "
        "local one]",
    )
    parser.add_argument(
        "--redis",
        metavar="URL",
        default="redis://127.0.0.1:6379/15",
        help="an empty database, which is emptied again [default: %(default)s]",
    )
    parser.add_argument(
        "--archives",
        type=Path,
        metavar="FOLDER",
        help="packed packages, such as those of `cargo x sdk` in target/sdk [default: the sources "
        "are packed]",
    )
    parser.add_argument(
        "--sdk", type=Path, default=ROOT / "sdk", metavar="FOLDER", help="sources [default: sdk]"
    )
    options = parser.parse_args()
    if options.smoke:
        options.seconds, options.rounds = 1.0, 1
        options.only = options.only or SMOKE
    is_whole = options.only is None and (options.seconds, options.rounds) == (SECONDS, ROUNDS)
    options.page = (BENCH if is_whole else TARGET) / "RESULTS.md"
    options.frameworks = [one for one in FRAMEWORKS if one.name in (options.only or names)]
    return options
