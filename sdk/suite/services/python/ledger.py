"""The inbox: each webhook is one entry of the ledger."""

import json

import reads
from hapax import Problem
from hapax.inbox import Acceptance, Inbox, SyncInbox

KEYS = {"bank": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]}
"""The secret with which the relay of the tests signs."""
INSERT = "INSERT INTO ledger_entry (message_id, amount) VALUES (%s, %s)"

inbox = Inbox("ledger", KEYS)
inbox_sync = SyncInbox("ledger", KEYS)


async def receive(headers, body):
    """Accept a webhook. Return the response."""
    try:
        message = inbox.verify("bank", headers, body)
        async with reads.pool.connection() as connection:
            if await inbox.accept(connection, message) is Acceptance.FIRST:
                await connection.execute(INSERT, entry_of(message))
                await inbox.processed(connection, message, "entered")
    except Problem as problem:
        return refused(problem)
    # After the commit. If the process ends before, the message is delivered again.
    return 200, {}, b""


def receive_sync(headers, body):
    """As :func:`receive`, in a thread."""
    try:
        message = inbox_sync.verify("bank", headers, body)
        with reads.pool_sync.connection() as connection:
            if inbox_sync.accept(connection, message) is Acceptance.FIRST:
                connection.execute(INSERT, entry_of(message))
                inbox_sync.processed(connection, message, "entered")
    except Problem as problem:
        return refused(problem)
    return 200, {}, b""


def entry_of(message):
    return message.id, json.loads(message.body)["data"]["amount"]


def refused(problem):
    response = problem.response()
    return response.status, dict(response.headers), response.body
