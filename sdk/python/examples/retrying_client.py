"""A client that may be killed at any time: one order per name, however often it is run.

Run it with ``python retrying_client.py http://127.0.0.1:8000/orders orders.journal "order 7"``.
"""

import sys

import httpx

from hapax.client import FileJournal, Retries, intent
from hapax.client.httpx import RetryTransport


def main(url: str, journal: str, name: str) -> None:
    transport = RetryTransport(Retries(journal=FileJournal(journal)))
    with httpx.Client(transport=transport) as client, intent(name=name):
        response = client.post(url, json={"item": "tea", "amount": 5})
    outcome = response.extensions["hapax"]
    print(response.status_code, response.json()["id"], f"{len(outcome.attempts)} attempt(s)")


if __name__ == "__main__":
    main(*sys.argv[1:])
