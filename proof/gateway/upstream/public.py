"""An unchanged application on a public framework (Flask), as a gateway finds it.

It knows nothing of idempotency keys. The ledger is a list in memory.

    python3 public.py PORT
"""

import sys

from flask import Flask, jsonify, request

app = Flask(__name__)
orders = []


@app.post("/orders")
def create():
    orders.append(request.get_json())
    return jsonify(id=len(orders), order=orders[-1]), 201


@app.get("/orders")
def read():
    return jsonify(items=orders)


if __name__ == "__main__":
    print("listening " + sys.argv[1], flush=True)
    app.run(port=int(sys.argv[1]), threaded=True)
