"""psycopg 3, with coroutines."""

from psycopg_pool import AsyncConnectionPool

from shop import CONNECTIONS, URL

IS_ASYNC = True
INSERT = "INSERT INTO shop_order (id, tenant, item, amount) VALUES (%(id)s, %(tenant)s, %(item)s, %(amount)s)"


async def engine():
    # Without prepared statements, nothing stays on a connection between two transactions, so the
    # service also works through a pooler in transaction mode.
    pool = AsyncConnectionPool(
        URL, kwargs={"prepare_threshold": None}, min_size=2, max_size=CONNECTIONS, timeout=5, open=False
    )
    await pool.open()
    return pool


async def insert(tx, row):
    await tx.connection.execute(INSERT, row)
