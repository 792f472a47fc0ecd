"""The measurement of a framework: all variants alternately, in rounds."""

import argparse
import json
import secrets
import subprocess
from dataclasses import dataclass

from .check import check
from .database import Counts, Database, scratch
from .folders import SOURCES
from .service import Service, services
from .variants import REPLAYED, Framework, Variant

CONNECTIONS = 8
WARMUP = 0.3
REPLAYED_KEYS = 1000
# Before the first round, so that the code of the services is compiled and their pools are full.
FIRST_REQUESTS = 500


@dataclass(frozen=True)
class Figures:
    """What one round has measured of a variant.

    Attributes:
        per_second: responses per second.
        p50_ms: median of the latencies.
        p99_ms: 99th percentile of the latencies.
        cpu_ms: CPU time of the service for each request.
        generator_cpu: cores that the load generator used.
    """

    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float
    generator_cpu: float


Results = dict[Variant, list[Figures]]


def measure(options: argparse.Namespace, framework: Framework) -> Results:
    """Check and measure all variants of a framework."""
    with (
        scratch(options.postgres, framework.name) as database,
        services(framework, {"DATABASE_URL": database.url, "REDIS_URL": options.redis}) as running,
    ):
        prefix = f"{framework.name}-{secrets.token_hex(8)}-"
        for variant in framework.variants:
            service = running[variant.service]
            if variant.is_replay:
                _load(variant, service, prefix, "--count", REPLAYED_KEYS)
            else:
                check(variant, service.port, database, secrets.token_hex(16))
                first = secrets.token_hex(12) + "-"
                _load(variant, service, first, "--count", FIRST_REQUESTS)
        results: Results = {variant: [] for variant in framework.variants}
        for number in range(options.rounds):
            database.settle()
            # Each round begins with another variant, because the first one follows a checkpoint.
            at = number % len(framework.variants)
            for variant in framework.variants[at:] + framework.variants[:at]:
                service = running[variant.service]
                figures = _measure(variant, service, database, prefix, options.seconds)
                results[variant].append(figures)
                _print(framework, number, variant, figures)
        return results


def _measure(
    variant: Variant, service: Service, database: Database, prefix: str, seconds: float
) -> Figures:
    """Measure a variant once, and check that each response had its effect."""
    before, cpu = database.counts(), service.cpu_seconds()
    limits = ("--seconds", seconds, "--warmup", WARMUP)
    if variant.is_replay:
        replayed = ("--keys", REPLAYED_KEYS, "--expect", REPLAYED)
        found = _load(variant, service, prefix, *limits, *replayed)
    else:
        found = _load(variant, service, secrets.token_hex(12) + "-", *limits)
    cpu = service.cpu_seconds() - cpu
    completed = found["completed"]
    effects = 0 if variant.is_replay else completed
    expected = Counts(effects, effects * variant.keys, effects * variant.events)
    rows = database.counts() - before
    if rows != expected:
        raise RuntimeError(f"{variant.name}: {completed} responses, but these rows: {rows}")
    return Figures(
        found["per_second"],
        found["p50_ms"],
        found["p99_ms"],
        cpu / completed * 1000,
        found["generator_cpu"],
    )


def _load(variant: Variant, service: Service, prefix: str, *limits: object) -> dict:
    command = ["node", SOURCES / "load.js", "--port", service.port, "--prefix", prefix]
    command += ["--header", variant.header, "--connections", CONNECTIONS, *limits]
    result = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{variant.name}: the load generator failed")
    return json.loads(result.stdout)


def _print(framework: Framework, number: int, variant: Variant, figures: Figures) -> None:
    print(
        f"{framework.name:8} round {number + 1}  {variant.name:34} {figures.per_second:7,.0f}/s"
        f"  p50 {figures.p50_ms:6.2f} ms  p99 {figures.p99_ms:6.2f} ms",
        flush=True,
    )
