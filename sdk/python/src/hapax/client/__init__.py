"""Retry client: sends a request until it gets a final response, with one key and the same bytes.

It is a transport of httpx (:mod:`hapax.client.httpx`) or an adapter of requests
(:mod:`hapax.client.requests`), so the rest of a program stays as it is.
"""

from .intent import Intent, intent
from .journal import FileJournal, Journal, JournalError
from .operation import Attempt, Outcome, Retries, SendError, StaleKeyError, Stopped
from .policy import Backoff, Budget, Policy

__all__ = [
    "Attempt",
    "Backoff",
    "Budget",
    "FileJournal",
    "Intent",
    "Journal",
    "JournalError",
    "Outcome",
    "Policy",
    "Retries",
    "SendError",
    "StaleKeyError",
    "Stopped",
    "intent",
]
