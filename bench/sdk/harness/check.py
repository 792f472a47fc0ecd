"""Checks of a variant before it is measured."""

import json
from http.client import HTTPConnection

from .database import Counts, Database
from .variants import REPLAYED, Variant

ORDER = json.dumps({"item": "tea", "amount": 5}, separators=(",", ":"))


def check(variant: Variant, port: int, database: Database, key: str) -> None:
    """Send a request twice: the first one is executed, the second one is a replay."""
    before = database.counts()
    first = _post(variant, port, key)
    _expect(variant, "status", first[0], 201)
    _expect(variant, "rows", database.counts() - before, Counts(1, variant.keys, variant.events))
    order = json.loads(first[2])
    _expect(variant, "order", (order["item"], order["amount"]), ("tea", 5))
    before = database.counts()
    second = _post(variant, port, key)
    _expect(variant, "status of the second response", second[0], 201)
    effects = Counts(1, 0, 0) if variant.repeats else Counts(0, 0, 0)
    _expect(variant, "rows of the second request", database.counts() - before, effects)
    # A package that stores the body as JSON may write it with other white space.
    is_equal = second[2] == first[2] if variant.keys else json.loads(second[2]) == order
    _expect(variant, "whether the bodies are equal", is_equal, not variant.repeats)
    is_marked = (first[1], second[1]) == (False, True)
    _expect(variant, "whether the replay is marked as Hapax does", is_marked, variant.keys > 0)


def _post(variant: Variant, port: int, key: str) -> tuple[int, bool, bytes]:
    """Return status, whether the response is marked as a replay of Hapax, and body."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    headers = {"Content-Type": "application/json", variant.header: key}
    connection.request("POST", "/orders", ORDER, headers)
    response = connection.getresponse()
    name, _, value = REPLAYED.partition(": ")
    answer = (response.status, response.getheader(name) == value, response.read())
    connection.close()
    return answer


def _expect(variant: Variant, what: str, found: object, expected: object) -> None:
    if found != expected:
        raise RuntimeError(f"{variant.name}: {what}: expected {expected}, found {found}")
