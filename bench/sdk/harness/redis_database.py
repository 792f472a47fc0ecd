"""An empty database of Redis for the packages that store responses there."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import redis


@contextmanager
def scratch(url: str) -> Iterator[str]:
    """Check that a database is empty, and empty it at the end. It yields the version of Redis."""
    client = redis.Redis.from_url(url)
    try:
        keys = client.dbsize()
    except redis.RedisError as error:
        sys.exit(f"{url}: {error}. Name a server with --redis.")
    if keys > 0:
        sys.exit(f"{url} contains {keys} keys: name an empty database with --redis")
    try:
        yield client.info("server")["redis_version"]
    finally:
        client.flushdb()
        client.close()
