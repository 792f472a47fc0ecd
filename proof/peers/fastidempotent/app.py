"""Orders with fastidempotent and its backend in memory, as in the first example of its documentation."""

import asyncio
import os

import uvicorn
from fastapi import FastAPI, Request
from fastidempotent import MemoryBackend, idempotent
from pydantic import BaseModel

app = FastAPI()
backend = MemoryBackend(ttl=3600)

orders = []


class Order(BaseModel):
    amount: int


@app.post("/orders", status_code=201)
@idempotent(backend=backend)
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
