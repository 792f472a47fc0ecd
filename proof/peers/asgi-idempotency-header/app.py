"""Orders with asgi-idempotency-header, in FastAPI.

The setup is the second one of its documentation; the first one does not pass the app to the
middleware, which is a required argument. The backend is the one in memory, instead of Redis.
"""

import asyncio
import os

import uvicorn
from fastapi import FastAPI
from fastapi.middleware import Middleware
from idempotency_header_middleware import IdempotencyHeaderMiddleware
from idempotency_header_middleware.backends import MemoryBackend
from pydantic import BaseModel

backend = MemoryBackend()

app = FastAPI(middleware=[Middleware(IdempotencyHeaderMiddleware, backend=backend)])

orders = []


class Order(BaseModel):
    amount: int


@app.post("/orders", status_code=201)
async def create_order(order: Order):
    await asyncio.sleep(0.2)
    created = {"id": len(orders) + 1, "amount": order.amount}
    orders.append(created)
    return created


@app.get("/orders")
async def list_orders():
    return orders


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
