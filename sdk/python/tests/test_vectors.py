"""The vectors of the contract, which all languages run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from hapax import Problem, codes
from hapax.client import policy
from hapax.client.operation import fate
from hapax.core import wsgi
from hapax.core.canonical import JsonInvalidError, canonical_json
from hapax.core.fingerprint import FingerprintMode, body_hash, fingerprint
from hapax.core.key import header_value
from hapax.core.message import Request, Response
from hapax.core.operation import Operation, sent_key
from hapax.core.profile import PROFILES
from hapax.core.stored import Disposition, disposition, split_headers
from hapax.core.webhook import KeyTextError, VerifyError, parse_signer, parse_verifier, sign, verify
from hapax.drivers import driver_of

from .conftest import copy_of

VECTORS = Path(__file__).parent / "../../vectors"
KEY = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


def cases(file: str) -> list[Any]:
    """Return the cases of a file, and fail if there are none."""
    path = VECTORS / file
    assert path.is_file(), f"the vectors are missing: {path.resolve()}"
    document = json.loads(path.read_text())
    assert document["version"] == 1
    assert document["cases"], f"{file} has no cases"
    return [
        pytest.param(case["input"], case["expect"], id=case["name"]) for case in document["cases"]
    ]


def data(value: Any) -> bytes:
    """Return the bytes of a member that is data."""
    if isinstance(value, str):
        return value.encode()
    if "hex" in value:
        return bytes.fromhex(value["hex"])
    members = ",".join(f'"m{number}":0' for number in range(value["members"]))
    return b"{" + members.encode() + b"}"


def text(value: Any) -> str:
    """Return the value of a header, each byte as a character."""
    return data(value).decode("latin-1")


def test_every_file_is_run() -> None:
    source = Path(__file__).read_text()
    files = sorted(VECTORS.glob("*.json"))
    assert files, f"the vectors are missing: {VECTORS.resolve()}"
    assert [file.name for file in files if f'"{file.name}"' not in source] == []


@pytest.mark.parametrize(("given", "expect"), cases("idempotency-key.json"))
def test_idempotency_key(given: Any, expect: Any) -> None:
    headers = [("idempotency-key", text(value)) for value in given["values"]]
    request = Request("POST", "/orders", b"/orders", b"", headers, b"")
    try:
        key = sent_key(Operation(profile=given["profile"]), request)
    except Problem as problem:
        found: Any = {"problem": {"status": problem.status, "code": problem.document()["code"]}}
    else:
        found = {} if key is None else {"key": key, "echo": header_value(key)}
    assert found == expect


@pytest.mark.parametrize(("given", "expect"), cases("canonical-json.json"))
def test_canonical_json(given: Any, expect: Any) -> None:
    body = data(given["body"])
    kinds = {
        "not valid": "syntax",
        "more than once": "duplicate",
        "deeper": "depth",
        "than 1": "members",
    }
    try:
        found = {"json": canonical_json(body), "json_semantic": canonical_json(body, by_value=True)}
    except JsonInvalidError as error:
        assert {"error": next(kind for part, kind in kinds.items() if part in str(error))} == expect
        return
    if "sha256" in expect:
        for mode in (FingerprintMode.JSON, FingerprintMode.JSON_SEMANTIC):
            assert body_hash(mode, "application/json", body).hex() == expect["sha256"]
    else:
        assert found == expect


@pytest.mark.parametrize(("given", "expect"), cases("fingerprint.json"))
def test_fingerprint(given: Any, expect: Any) -> None:
    path, _, query = given["target"].encode().partition(b"?")
    headers = [(name.lower(), text(value)) for name, value in given["headers"]]
    request = Request(given["method"], given["template"], path, query, headers, b"")
    name = Operation(service=given["service"]).name_for(request)
    mode = FingerprintMode(given["mode"])
    try:
        found: Any = {
            "fingerprint": fingerprint(mode, name, path, query, headers, data(given["body"])).hex()
        }
    except Problem as problem:
        found = {"problem": {"status": problem.status, "code": problem.code.name}}
    assert found == expect


@pytest.mark.parametrize(("given", "expect"), cases("fingerprint-pairs.json"))
def test_fingerprint_pairs(given: Any, expect: Any) -> None:
    mode = FingerprintMode(given["mode"])
    first, second = (
        body_hash(mode, "application/json", given[name].encode()) for name in ("first", "second")
    )
    assert (first == second) is expect["equal"]


@pytest.mark.parametrize(("given", "expect"), cases("stored-headers.json"))
def test_stored_headers(given: Any, expect: Any) -> None:
    headers = [(name.lower(), text(value)) for name, value in given["headers"]]
    if given["status"] >= 400:
        headers = [pair for pair in headers if pair[0] != "retry-after"]
    per_request = frozenset(name.lower() for name in given["per_request"])
    stored, first_only = split_headers(headers, per_request)
    # The package makes no X-Request-Id: one that a handler sets is of this exchange.
    found = {
        "stored": sorted(stored, key=lambda pair: pair[0]),
        "first_only": sorted(first_only, key=lambda pair: pair[0]),
    }
    wanted = {
        kind: [(name, text(value)) for name, value in expect[kind]]
        for kind in ("stored", "first_only")
    }
    assert found == wanted


@pytest.mark.parametrize(("given", "expect"), cases("stored-by-status.json"))
def test_stored_by_status(given: Any, expect: Any) -> None:
    names = {
        Disposition.WITH_EFFECT: "with_effect",
        Disposition.WITHOUT_EFFECT: "effect_free",
        Disposition.RELEASE: "released",
    }
    found: dict[str, list[int]] = {name: [] for name in names.values()}
    for status in given["statuses"]:
        verdict = disposition(
            status,
            store_failures=given["on_failure"] == "store",
            profile=PROFILES[given["profile"]],
        )
        found[names[verdict]].append(status)
    assert found == expect


@pytest.mark.parametrize(("given", "expect"), cases("problem-codes.json"))
def test_problem_codes(given: Any, expect: Any) -> None:
    known = {code.name: code for code in vars(codes).values() if isinstance(code, codes.Code)}
    document = Problem(known[given["code"]]).document()
    assert {name: document[name] for name in expect} == expect


class Shop:
    """Runs requests against a real database."""

    def __init__(self, url: str) -> None:
        self.pool = ConnectionPool(url, min_size=1, max_size=4, timeout=5, open=True)
        self.db = psycopg.connect(url, autocommit=True)

    def send(self, profile: str, *headers: tuple[str, str], **settings: Any) -> Response:
        body = settings.pop("body", b"{}")
        view = settings.pop("view", lambda _: Response(201, [("content-type", "a/b")], b"done"))
        driver = driver_of(settings.pop("pool", self.pool))
        kind = settings.pop("kind", "application/json")
        every = [("x-request-id", "req-1"), ("content-type", kind), *headers]
        request = Request("POST", "/orders", b"/orders", b"", every, body)
        operation = Operation(profile=profile, wait=0.05, **settings)
        return wsgi.run(driver, operation, request, lambda: "ann", view, lambda _: True)


@pytest.fixture(scope="module")
def shop(template: str) -> Iterator[Shop]:
    with copy_of(template) as url:
        opened = Shop(url)
        yield opened
        opened.pool.close()
        opened.db.close()


def raises(_: Any) -> Response:
    raise RuntimeError("the handler fails")


def problem_of(shop: Shop, situation: str, profile: str) -> Response:
    """Bring about a situation and return the response."""
    keyed = ("idempotency-key", KEY)
    if situation == "mismatch":
        shop.send(profile, keyed)
        return shop.send(profile, keyed, body=b"[]")
    if situation == "in progress":
        inner: list[Response] = []

        def view(_: Any) -> Response:
            inner.append(shop.send(profile, keyed))
            return Response(201)

        shop.send(profile, keyed, view=view)
        return inner[0]
    if situation == "expired":
        shop.send(profile, keyed, on_expired="gone")
        shop.db.execute("UPDATE hapax.idempotency_key SET expires_at = now() - interval '1 s'")
        return shop.send(profile, keyed, on_expired="gone")
    if situation == "store unavailable":
        with ConnectionPool(
            "postgres://nobody@127.0.0.1:1/none", min_size=1, timeout=0.2, open=True
        ) as pool:
            return shop.send(profile, keyed, pool=pool)
    members = b"{" + b",".join(b'"m%d":0' % number for number in range(10_001)) + b"}"
    simple: dict[str, tuple[list[tuple[str, str]], dict[str, Any]]] = {
        "key missing": ([], {"key": "required"}),
        "key twice": ([("idempotency-key", "k")] * 2, {}),
        "key with a space": ([("idempotency-key", "a b")], {}),
        "key reserved": ([("idempotency-key", "derived:a")], {}),
        "key not a UUID v7": ([("idempotency-key", "k")], {}),
        "JSON cut off": ([keyed], {"body": b'{"a":'}),
        "JSON with a duplicate member": ([keyed], {"body": b'{"a":1,"a":2}'}),
        "JSON nested too deep": ([keyed], {"body": b"[" * 129}),
        "JSON with too many members": ([keyed], {"body": members}),
        "multipart without a boundary": ([keyed], {"kind": "multipart/form-data"}),
        "handler fails": ([keyed], {"view": raises}),
        "handler fails and the failure is stored": (
            [keyed],
            {"view": raises, "store_failures": True},
        ),
        "handler takes too long": ([keyed, ("x-request-timeout", "0")], {}),
    }
    headers, settings = simple[situation]
    return shop.send(profile, *headers, **settings)


@pytest.mark.parametrize(("given", "expect"), cases("problems.json"))
def test_problems(shop: Shop, given: Any, expect: Any) -> None:
    shop.db.execute("DELETE FROM hapax.idempotency_key")
    response = problem_of(shop, given["situation"], given["profile"])
    compared = ("content-type", "retry-after", "idempotency-key", "idempotency-status")
    headers = {name: value for name, value in response.headers if name in compared}
    assert response.body.decode() == expect["body"]
    assert response.status == expect["status"]
    assert headers == expect["headers"]


@pytest.mark.parametrize(("given", "expect"), cases("webhook-keys.json"))
def test_webhook_keys(given: Any, expect: Any) -> None:
    parse = parse_signer if given["role"] == "signer" else parse_verifier
    try:
        key: Any = parse(given["text"])
    except KeyTextError as error:
        assert {"error": error.kind} == expect
        return
    found = {"scheme": key.scheme}
    if "public" in expect:
        found["public"] = key.public
    assert found == expect


@pytest.mark.parametrize(("given", "expect"), cases("webhook-sign.json"))
def test_webhook_sign(given: Any, expect: Any) -> None:
    keys = [parse_signer(key) for key in given["keys"]]
    assert sign(given["id"], given["timestamp"], data(given["body"]), keys) == expect["signature"]


@pytest.mark.parametrize(("given", "expect"), cases("webhook-verify.json"))
def test_webhook_verify(given: Any, expect: Any) -> None:
    keys = [parse_verifier(key) for key in given["keys"]]
    message = (given["id"], given["timestamp"], given["signature"], data(given["body"]))
    found: Any = {"ok": True}
    try:
        verify(*message, keys, now=given["now"], tolerance=given["tolerance"])
    except VerifyError as error:
        found = {"error": error.kind}
        if error.header is not None:
            found["header"] = error.header
    assert found == expect


@pytest.mark.parametrize(("given", "expect"), cases("retry-after.json"))
def test_retry_after(given: Any, expect: Any) -> None:
    assert (
        policy.retry_after(given["retry_after"], given["date"], given["now"]) == expect["seconds"]
    )


@pytest.mark.parametrize(("given", "expect"), cases("retry-decisions.json"))
def test_retry_decisions(given: Any, expect: Any) -> None:
    terms, outcome = given["policy"], given["outcome"]
    backoff = policy.Backoff(
        terms["base_ms"] / 1000,
        terms["cap_ms"] / 1000,
        terms["attempts_max"],
        terms["total_ms"] / 1000,
    )
    if isinstance(outcome, str):
        seen = policy.Seen(outcome)
    else:
        headers = [(name.lower(), text(value)) for name, value in outcome["headers"]]
        seen = policy.seen_response(
            outcome["status"],
            lambda wanted: next((value for name, value in headers if name == wanted), None),
            data(outcome["body"]),
            given["now"],
        )
    decision = policy.decide(
        backoff,
        seen,
        is_repeatable=policy.is_repeatable(given["method"], given["has_key"]),
        attempt=given["attempt"],
        left=max(0.0, backoff.total - given["elapsed_ms"] / 1000),
        random=given["random"],
        allows=lambda: not given["budget_exhausted"],
    )
    found: Any = {"stop": decision.stop}
    if decision.wait is not None:
        found = {"wait_ms": round(decision.wait * 1000)}
    elif decision.stop == "retry_after":
        assert seen.retry_after is not None
        found["retry_after_ms"] = round(seen.retry_after * 1000)
    assert found == expect


@pytest.mark.parametrize(("given", "expect"), cases("retry-budget.json"))
def test_retry_budget(given: Any, expect: Any) -> None:
    balance = policy.Balance(policy.Budget(**given["budget"]), 0)
    found = [[getattr(balance, act)(at), balance.amount][::-1] for at, act in given["steps"]]
    assert found == expect["steps"]


@pytest.mark.parametrize(("given", "expect"), cases("journal.json"))
def test_journal(given: Any, expect: Any) -> None:
    stored = policy.says_stored(given["idempotency_status"])
    seen = policy.Seen("response", given["status"], None, stored, given["code"])
    assert {"key": fate(seen, in_doubt=given["in_doubt"])} == expect
