"""Reads outside of any key's transaction."""

from psycopg_pool import AsyncConnectionPool, ConnectionPool

import shop

OPTIONS = {"kwargs": {"prepare_threshold": None}, "min_size": 1, "max_size": 2, "open": False}
pool = AsyncConnectionPool(shop.URL, **OPTIONS)
pool_sync = ConnectionPool(shop.URL, **OPTIONS)


async def orders(tenant):
    async with pool.connection() as connection:
        rows = await (await connection.execute(shop.ORDERS, [tenant])).fetchall()
    return listed(rows)


def orders_sync(tenant):
    with pool_sync.connection() as connection:
        return listed(connection.execute(shop.ORDERS, [tenant]).fetchall())


def listed(rows):
    return {"items": [{"id": row[0]} for row in rows]}
