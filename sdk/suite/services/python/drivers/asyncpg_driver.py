"""asyncpg."""

import asyncpg

from shop import CONNECTIONS, URL

IS_ASYNC = True
INSERT = "INSERT INTO shop_order (id, tenant, item, amount) VALUES ($1, $2, $3, $4)"


async def engine():
    return await asyncpg.create_pool(
        URL, min_size=2, max_size=CONNECTIONS, timeout=5, statement_cache_size=0
    )


async def insert(tx, row):
    await tx.connection.execute(INSERT, row["id"], row["tenant"], row["item"], row["amount"])
