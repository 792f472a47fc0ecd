"""FastAPI with an ORM session: an idempotent order, and a webhook that is processed once.

Run it with ``DATABASE_URL=postgres://... python fastapi_sqlalchemy.py 8000``.
"""

import os
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from hapax import Problem, codes
from hapax.fastapi import AsyncTx, Hapax
from hapax.inbox import Acceptance, Inbox

URL = os.environ["DATABASE_URL"].replace("postgres://", "postgresql+asyncpg://")
engine = create_async_engine(URL)
sessions = async_sessionmaker(engine, expire_on_commit=False)
inbox = Inbox("ledger", {"bank": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]})


class Base(DeclarativeBase):
    """Tables of the service."""


class OrderRow(Base):
    """An order."""

    __tablename__ = "example_order"
    id: Mapped[str] = mapped_column(primary_key=True)
    item: Mapped[str]
    amount: Mapped[int]


class LedgerRow(Base):
    """A payment that the bank has reported."""

    __tablename__ = "example_ledger"
    id: Mapped[int] = mapped_column(primary_key=True)
    message_id: Mapped[str]


class Order(BaseModel):
    """The body of a request."""

    item: str
    amount: int


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


app = FastAPI(lifespan=lifespan)
hapax = Hapax(sessions, tenant=lambda request: request.headers.get("x-user", "demo"))
hapax.install(app)


@app.post("/orders", status_code=201)
async def create(
    order: Order, tx: Annotated[AsyncTx, Depends(hapax.transaction)], response: Response
) -> dict[str, object]:
    row = OrderRow(id=f"ord_{uuid.uuid4()}", item=order.item, amount=order.amount)
    tx.session.add(row)
    if order.item == "sold out":
        raise Problem(codes.CONFLICT, "the item is sold out")
    await tx.emit("order.created", order, aggregate=("order", row.id))
    response.headers["Location"] = f"/orders/{row.id}"
    return {"id": row.id, "item": row.item, "amount": row.amount}


@app.post("/webhooks/{source}")
async def receive(source: str, request: Request) -> Response:
    message = inbox.verify(source, request.headers, await request.body())
    async with sessions.begin() as session:
        if await inbox.accept(session, message) is Acceptance.FIRST:
            session.add(LedgerRow(message_id=message.id))
            await session.flush()
            await inbox.processed(session, message, "entered")
    # Acknowledged after the commit. A message that is delivered again is a duplicate.
    return Response(status_code=204)


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
