"""SQLAlchemy's ORM, with coroutines, on asyncpg."""

import uuid

from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from drivers.sqlalchemy_model import ShopOrder
from shop import CONNECTIONS, URL

IS_ASYNC = True


async def engine():
    url = make_url(URL).set(drivername="postgresql+asyncpg")
    query = dict(url.query)
    options = {
        # As SQLAlchemy's documentation advises for a pooler in transaction mode.
        "statement_cache_size": 0,
        "prepared_statement_cache_size": 0,
        "prepared_statement_name_func": lambda: f"__{uuid.uuid4()}__",
        # SQLAlchemy passes the query of a URL to asyncpg, which has other names.
        "server_settings": {"application_name": query.get("application_name", "shop")},
        "ssl": query.get("sslmode"),
    }
    engine = create_async_engine(
        url.set(query={}), connect_args=options, pool_size=CONNECTIONS, max_overflow=0, pool_timeout=5
    )
    return async_sessionmaker(engine, expire_on_commit=False)


async def insert(tx, row):
    tx.session.add(ShopOrder(**row))
    await tx.session.flush()
