"""psycopg 3, in threads."""

from psycopg_pool import ConnectionPool

from shop import CONNECTIONS, URL

IS_ASYNC = False
INSERT = "INSERT INTO shop_order (id, tenant, item, amount) VALUES (%(id)s, %(tenant)s, %(item)s, %(amount)s)"


def engine():
    return ConnectionPool(
        URL, kwargs={"prepare_threshold": None}, min_size=2, max_size=CONNECTIONS, timeout=30, open=True
    )


def insert(tx, row):
    tx.connection.execute(INSERT, row)
