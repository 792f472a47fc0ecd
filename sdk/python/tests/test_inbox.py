"""Webhooks: what is verified, and that each message is processed once."""

import asyncio
import time
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from hapax import EngineError, Problem
from hapax.core.webhook import parse_signer, sign
from hapax.inbox import Acceptance, Inbox, Message, SyncInbox

from .test_engines import alchemy

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
PAIR = (
    "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
)
SOURCES = {"bank": [OLD, SECRET], "shop": ["whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="]}
INSERT = "INSERT INTO ledger_entry VALUES ('evt_1', 1)"
MESSAGE = Message("bank", "evt_1", b"{}")


def headers(body: bytes, key: str = SECRET, at: int | None = None) -> dict[str, str]:
    moment = int(time.time()) if at is None else at
    signature = sign("evt_1", moment, body, [parse_signer(key)])
    return {
        "Webhook-Id": "evt_1",
        "Webhook-Timestamp": str(moment),
        "Webhook-Signature": signature,
    }


def count(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM ledger_entry").fetchone()
    assert row is not None
    return int(row[0])


def test_a_message_of_a_known_source_is_verified() -> None:
    inbox = SyncInbox("ledger", SOURCES)
    assert inbox.verify("bank", headers(b"{}"), b"{}") == MESSAGE
    assert inbox.verify("shop", headers(b"{}", PAIR), b"{}").source == "shop"


@pytest.mark.parametrize(
    ("source", "sent", "status"),
    [
        ("nobody", headers(b"{}"), 404),
        ("bank", headers(b"[]"), 401),
        ("bank", headers(b"{}", PAIR), 401),
        ("bank", headers(b"{}", at=1_700_000_000), 401),
        ("bank", {}, 401),
    ],
)
def test_another_message_is_refused(source: str, sent: dict[str, str], status: int) -> None:
    with pytest.raises(Problem) as refused:
        SyncInbox("ledger", SOURCES).verify(source, sent, b"{}")
    assert refused.value.status == status
    assert refused.value.response().header("content-type") == "application/problem+json"


def test_the_example_of_the_contract_is_verified() -> None:
    sent = {
        "webhook-id": "01a1fcb0-af00-7d0a-9b1c-5a1f0e6c2d11",
        "webhook-timestamp": "1795240800",
        "webhook-signature": "v1,Ky23HwVFYA8YsuhUREGtuGnJ/RAx3kv3rN4O0S98R6E=",
    }
    body = (
        b'{"type":"order.created","timestamp":"2026-11-21T06:00:00.000Z",'
        b'"data":{"id":"ord_1","amount":1000}}'
    )
    assert SyncInbox("ledger", SOURCES).verify("bank", sent, body, now=1_795_240_810).body == body


def process(inbox: SyncInbox, connection: Any, execute: Any) -> Acceptance:
    accepted = inbox.accept(connection, MESSAGE)
    if accepted is Acceptance.FIRST:
        execute(INSERT)
        inbox.processed(connection, MESSAGE, "applied")
    return accepted


def test_each_synchronous_driver_accepts_a_message_once(database: str) -> None:
    inbox = SyncInbox("ledger", SOURCES)
    engine = sqlalchemy.create_engine(alchemy(database))
    found = []
    with psycopg.connect(database) as connection:
        found.append(process(inbox, connection, connection.execute))
    with engine.begin() as begun:
        found.append(process(inbox, begun, lambda sql: begun.execute(sqlalchemy.text(sql))))
    with Session(engine) as session, session.begin():
        found.append(process(inbox, session, lambda sql: session.execute(sqlalchemy.text(sql))))
    with psycopg.connect(database) as connection, pytest.raises(Problem) as refused:
        inbox.accept(connection, Message("bank", "evt_1", b"other"))
    assert found == [Acceptance.FIRST, Acceptance.DUPLICATE, Acceptance.DUPLICATE]
    assert refused.value.code.name == "CONFLICT.inbox.payload_mismatch"
    assert count(database) == 1
    engine.dispose()


def test_two_hundred_deliveries_through_all_asynchronous_drivers_have_one_effect(
    database: str,
) -> None:
    inbox = Inbox("ledger", SOURCES)

    async def deliver() -> list[Acceptance]:
        psycopg_pool = AsyncConnectionPool(database, max_size=4, open=False)
        await psycopg_pool.open()
        asyncpg_pool = await asyncpg.create_pool(database, min_size=1, max_size=4)
        engine = create_async_engine(alchemy(database, "asyncpg"), pool_size=4, max_overflow=0)

        async def once(connection: Any, execute: Any) -> Acceptance:
            accepted = await inbox.accept(connection, MESSAGE)
            if accepted is Acceptance.FIRST:
                await execute(INSERT)
                await inbox.processed(connection, MESSAGE, "applied")
            return accepted

        async def one(number: int) -> Acceptance:
            if number % 3 == 0:
                async with psycopg_pool.connection() as connection:
                    return await once(connection, connection.execute)
            if number % 3 == 1:
                async with asyncpg_pool.acquire() as connection, connection.transaction():
                    return await once(connection, connection.execute)
            async with AsyncSession(engine) as session, session.begin():
                return await once(session, lambda sql: session.execute(sqlalchemy.text(sql)))

        found = await asyncio.gather(*[one(number) for number in range(200)])
        await psycopg_pool.close()
        await asyncpg_pool.close()
        await engine.dispose()
        return found

    found = asyncio.run(deliver())
    assert found.count(Acceptance.FIRST) == 1
    assert found.count(Acceptance.DUPLICATE) == 199
    assert count(database) == 1


def test_a_rolled_back_effect_is_accepted_again(database: str) -> None:
    inbox = SyncInbox("ledger", SOURCES)
    with pytest.raises(RuntimeError), psycopg.connect(database) as connection:
        process(inbox, connection, connection.execute)
        raise RuntimeError("the effect fails")
    with psycopg.connect(database) as connection:
        assert process(inbox, connection, connection.execute) is Acceptance.FIRST
    assert count(database) == 1


def test_a_pool_is_refused(database: str) -> None:
    with (
        ConnectionPool(database, open=True) as pool,
        pytest.raises(EngineError, match="pass the connection or session"),
    ):
        SyncInbox("ledger", SOURCES).accept(pool, MESSAGE)
