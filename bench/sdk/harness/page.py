"""The part of RESULTS.md with the figures, as Markdown."""

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median

from . import machine
from .measure import CONNECTIONS, REPLAYED_KEYS, WARMUP, Figures, Results
from .variants import BARE, Framework, Variant

HEADING = "# Packages for TypeScript and Python"
# The part that is at the end of the page.
LAST = "# Fleet"
COLUMNS = "| variant | requests/s | / bare | p50 (ms) | p99 (ms) | CPU (ms) | atomic |"
LINE = "|---|---:|---:|---:|---:|---:|---|"
METHOD = """\
`POST /orders` inserts one row and responds with 201. Each service is one process with a pool of 8
connections; Flask and Django have 8 threads. {connections} connections send requests, each the next
one after a response. The variants of a framework share a database and alternate: in each round,
each one is measured for {seconds:g}s after {warmup:g}s of warm-up. Number of rounds: {rounds}.
Figures are medians of the rounds, with minimum and maximum in brackets. "/ bare" is the ratio of
the rates of one round. A replay is one of {keys:,} stored keys. It was checked that each variant
responds with 201, and to a retry with the first response; and, after each measurement, that there
are as many orders, keys and events as responses. Service, database and load generator share the
cores. The generator (`bench/sdk/load.js`) used {least:.2f} to {most:.2f} cores.

"CPU" is the CPU time of the service for each request, without the database. "Atomic" says whether
the order and the stored response are one commit. If they are not, a crash between the two makes a
retry insert the order again, or leaves the key in progress."""
NOT_MEASURED = """\
Not measured, because it could not be installed or imported:

| package | reason |
|---|---|
| `hono-idempotency` | `npm install` ended with 404 |
| `@node-idempotency/express`, `@node-idempotency/fastify` | `npm install` ended with 404 |
| `Flask-Idempotent` 0.1.0, `flask-idempotent2` 0.0.6 | import names that Flask 3 does not have |
"""


def text(
    options: argparse.Namespace,
    facts: Iterable[str],
    measured: dict[Framework, Results],
    seconds: float,
) -> str:
    """Return the part."""
    lines = [
        HEADING,
        "",
        f"Written by `{command(options)}`, in {seconds:.0f}s. How to repeat and how to read them: "
        "[README.md](README.md#packages-for-typescript-and-python).",
        "",
        *(f"- {fact}" for fact in facts),
        "",
        _method(options, measured),
        "",
        NOT_MEASURED,
    ]
    for framework, results in measured.items():
        lines += _section(framework, results)
    return "\n".join(lines).rstrip() + "\n"


def command(options: argparse.Namespace) -> str:
    """Return the command with the options on which the figures depend."""
    only = "".join(f" --only {name}" for name in options.only or ())
    return f"bench/sdk/run --seconds {options.seconds:g} --rounds {options.rounds}{only}"


def write(path: Path, part: str) -> None:
    """Replace the part of a page, and keep the others."""
    page = path.read_text() if path.exists() else ""
    before, found, rest = page.partition(f"{HEADING}\n")
    if found:
        _, mark, after = rest.partition("\n# ")
        after = f"# {after}" if mark else ""
    else:
        before, mark, after = page.partition(f"{LAST}\n")
        after = mark + after
    parts = (before.strip(), part.strip(), after.strip())
    path.write_text("\n\n".join(filter(None, parts)) + "\n")


def _method(options: argparse.Namespace, measured: dict[Framework, Results]) -> str:
    every = [one for results in measured.values() for found in results.values() for one in found]
    shares = [one.generator_cpu for one in every]
    return METHOD.format(
        connections=CONNECTIONS,
        seconds=options.seconds,
        warmup=WARMUP,
        rounds=options.rounds,
        keys=REPLAYED_KEYS,
        least=min(shares),
        most=max(shares),
    )


def _section(framework: Framework, results: Results) -> list[str]:
    versions = (machine.package(framework, name) for name in (framework.name, *framework.with_it))
    bare = results[BARE]
    rows = [_row(framework, variant, found, bare) for variant, found in results.items()]
    return [f"## {framework.title}", "", ", ".join(versions), "", COLUMNS, LINE, *rows, ""]


def _row(framework: Framework, variant: Variant, found: list[Figures], bare: list[Figures]) -> str:
    label = variant.label
    if variant.package not in {None, "hapax"}:
        number = machine.package(framework, str(variant.package)).rpartition(" ")[2]
        label = label.replace("`,", f"` {number},")
    pairs = zip(found, bare, strict=True)
    ratios = [one.per_second / base.per_second for one, base in pairs]
    cells = [
        label,
        _spread([one.per_second for one in found], "{:,.0f}".format),
        "" if variant == BARE else _spread(ratios, "{:.2f}".format),
        _spread([one.p50_ms for one in found], "{:.2f}".format),
        _spread([one.p99_ms for one in found], "{:.2f}".format),
        f"{median(one.cpu_ms for one in found):.2f}",
        _atomic(variant),
    ]
    return f"| {' | '.join(cells)} |"


def _atomic(variant: Variant) -> str:
    if variant == BARE:
        return "no key"
    if variant.is_replay:
        return "no effect"
    return "yes" if variant.package == "hapax" else "**no**"


def _spread(values: list[float], show: Callable[[float], str]) -> str:
    return f"{show(median(values))} ({show(min(values))} to {show(max(values))})"
