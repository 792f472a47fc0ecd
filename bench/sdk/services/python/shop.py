"""What the services have in common: their settings and the statement of an order."""

import os
from typing import Any

VARIANT = os.environ["VARIANT"]
DATABASE_URL = os.environ["DATABASE_URL"]
REDIS_URL = os.environ.get("REDIS_URL", "")
IS_HAPAX = VARIANT in {"hapax", "event"}
HAS_EVENT = VARIANT == "event"
INSERT = "INSERT INTO orders (item, amount) VALUES (%s, %s) RETURNING id"
# Outside of Hapax, the statement is its own commit.
POOL: dict[str, Any] = {
    "min_size": 8,
    "max_size": 8,
    "open": False,
    "kwargs": {} if IS_HAPAX else {"autocommit": True},
}
