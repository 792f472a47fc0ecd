"""The run: measures the frameworks and writes the page."""

import signal
import sys
import time
from datetime import datetime, timezone

import psycopg

from . import arguments, database, machine, page, redis_database
from .measure import measure


def main() -> None:
    """Measure, and print and write the figures."""
    # An ended run stops its services and drops its databases.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit("bench/sdk/run: stopped by a signal"))
    options = arguments.parse()
    started, start = datetime.now(timezone.utc), time.monotonic()
    facts = [
        f"measured: {started:%a, %d %b %Y %H:%M:%S} GMT, commit {machine.commit()}",
        f"machine: {machine.machine()}",
        f"load average before: {machine.load()}",
        machine.languages(),
        database.describe(options.postgres),
    ]
    with redis_database.scratch(options.redis) as version:
        facts.append(f"Redis {version}")
        measured = {framework: measure(options, framework) for framework in options.frameworks}
    text = page.text(options, facts, measured, time.monotonic() - start)
    page.write(options.page, text)
    print(f"\n{text}\nwritten to {options.page}")


if __name__ == "__main__":
    try:
        main()
    except (RuntimeError, psycopg.OperationalError) as error:
        sys.exit(f"bench/sdk/run: {error}")
