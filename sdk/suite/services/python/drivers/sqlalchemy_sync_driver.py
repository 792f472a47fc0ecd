"""SQLAlchemy's ORM, in threads, on psycopg."""

from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.orm import sessionmaker

from drivers.sqlalchemy_model import ShopOrder
from shop import CONNECTIONS, URL

IS_ASYNC = False


def engine():
    engine = create_engine(
        make_url(URL).set(drivername="postgresql+psycopg"),
        connect_args={"prepare_threshold": None},
        pool_size=CONNECTIONS,
        max_overflow=0,
        pool_timeout=30,
    )
    return sessionmaker(engine, expire_on_commit=False)


def insert(tx, row):
    tx.session.add(ShopOrder(**row))
    tx.session.flush()
