"""Orders with fastapi-idempotency, as in the first example of its documentation.

The store is the default one, which is in memory.
"""

import asyncio
import os

import uvicorn
from fastapi import FastAPI
from fastapi_idempotency import IdempotencyMiddleware
from pydantic import BaseModel

app = FastAPI()
app.add_middleware(IdempotencyMiddleware)

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
