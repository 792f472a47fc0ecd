"""Orders with pyidempotent, as in the full example of its documentation for FastAPI.

The backend is the one in memory, instead of Redis.
"""

import asyncio
import os

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel
from pyidempotent import IdempotencyConflict, idempotent
from pyidempotent.backends.memory import MemoryBackend

app = FastAPI()
backend = MemoryBackend()

orders = []


class Order(BaseModel):
    amount: int


@app.exception_handler(IdempotencyConflict)
async def conflict_handler(_, exc):
    raise HTTPException(422, "Idempotency-Key already used with different payload")


@app.post("/orders", status_code=201)
@idempotent(backend=backend, key_header="Idempotency-Key")
async def create_order(request: Request, order: Order):
    await asyncio.sleep(0.2)
    created = {"id": len(orders) + 1, "amount": order.amount}
    orders.append(created)
    return created


@app.get("/orders")
async def list_orders():
    return orders


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ["PORT"]), log_level="warning")
