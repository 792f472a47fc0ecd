"""Calls of a provider: one key for all attempts, refusals, and outcomes that are unknown."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from psycopg_pool import AsyncConnectionPool

from hapax import CallFailure, Problem, codes, phased
from hapax.core.driver import done
from hapax.core.owner import EndedError, Owner
from hapax.drivers.psycopg_unit import PsycopgUnit

from .phased_kit import Kit
from .provider import DECLINED, charge, find
from .services.payment import execute, insert, pay, request

UUID_V8 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def refused(kit: Kit, key: str, code: codes.Code, **how: Any) -> Problem:
    """Pay, and return the problem."""
    with pytest.raises(Problem) as info:
        kit.pay(key, **how)
    assert info.value.code is code
    return info.value


def test_every_owner_calls_the_provider_under_the_same_key(kit: Kit, key: str) -> None:
    kit.provider.decide = lambda _: "lost"
    assert refused(kit, key, codes.TIMEOUT).status == 504
    assert kit.column(key, "lease_until <= clock_timestamp()")
    assert kit.pay(key).outcome == "stored"
    first, second = kit.provider.calls
    assert first == second
    assert UUID_V8.fullmatch(first)
    assert len(kit.provider.charges) == 1
    assert kit.rows(key) == 2


def test_the_result_of_a_call_is_stored_with_the_next_phase(kit: Kit, key: str) -> None:
    async def fail(phases: Any) -> phased.Response:
        await pay(phases, key, kit.provider.url)
        raise RuntimeError("later")

    with pytest.raises(RuntimeError, match="later"):
        kit.run(key, fail)
    assert kit.column(key, "recovery_data") == {
        "reserved": None,
        "charge": {"id": "ch_1"},
        "charged": None,
    }
    assert kit.pay(key).outcome == "stored"
    assert len(kit.provider.calls) == 1
    assert kit.rows(key) == 2


@pytest.mark.parametrize("recognizes_keys", [True, False])
@pytest.mark.parametrize(
    ("result", "what"),
    [
        ({"id": ["a\0b"]}, "the character NUL"),
        ("\\\0", "the character NUL"),
        ({"\ud800": 1}, "a lone surrogate"),
        # As text of PostgreSQL, with a space after each comma and without exponents.
        ([1] * 400_000, "more than 1048576 bytes"),
        ([1e300] * 4_000, "more than 1048576 bytes"),
        (float("nan"), "not JSON compliant"),
    ],
)
def test_a_result_that_cannot_be_stored_is_refused_by_its_call(
    shared: str, key: str, result: object, what: str, recognizes_keys: bool
) -> None:
    kit = Kit("psycopg", shared)

    async def call(_: str) -> object:
        return result

    async def handler(phases: Any) -> phased.Response:
        with pytest.raises(ValueError, match=what):
            await phases.call("charge", call, recognizes_keys=recognizes_keys)
        raise Problem(codes.CONFLICT, "the handler gives up")

    try:
        with pytest.raises(Problem):
            kit.run(key, handler)
        assert kit.column(key, "state") == "in_progress"
    finally:
        kit.close()


@pytest.mark.parametrize(
    "result", ["é" * 500_000, "\\u0000 \\\\u0000", "\U0001f600\x7f\x01", [1.5e-7, -0.25]]
)
def test_a_result_that_can_be_stored_is_stored(kit: Kit, key: str, result: object) -> None:
    async def handler(phases: Any) -> phased.Response:
        async def call(_: str) -> object:
            return result

        assert await done(phases.call("charge", call)) == result
        await done(phases.transaction("charged", lambda tx: insert(tx, key)))
        assert kit.column(key, "recovery_data -> 'charge'") == result
        return phased.Response(201)

    assert kit.run(key, handler).outcome == "stored"


def test_a_refusal_is_stored_and_an_undone_phase_leaves_nothing(kit: Kit, key: str) -> None:
    kit.provider.decide = lambda _: "decline"

    async def give_back(tx: Any) -> None:
        await execute(tx, f"DELETE FROM shop_order WHERE item = '{key} reserved'")

    async def handler(phases: Any) -> phased.Response:
        try:
            await pay(phases, key, kit.provider.url)
        except Problem as problem:
            assert problem.code is DECLINED
            await done(phases.undo("reserved", give_back))
            raise
        return phased.Response(201)

    first, second = kit.run(key, handler), kit.run(key, handler)
    assert (first.outcome, second.outcome) == ("stored", "replayed")
    assert first.response.status == 402
    assert first.response.body == second.response.body
    assert kit.rows(key) == 0


def test_the_name_of_a_step_that_is_not_repeated_leaves_room_for_its_record(
    kit: Kit, key: str
) -> None:
    calls: list[str] = []

    async def fail(asked: str) -> None:
        calls.append(asked)
        raise RuntimeError("no connection")

    def calling(step: str) -> Any:
        async def handler(phases: Any) -> phased.Response:
            nothing = CallFailure.NOTHING_HAPPENED
            await done(phases.call(step, fail, outcome=lambda _: nothing, recognizes_keys=False))
            return phased.Response(201)

        return handler

    with pytest.raises(ValueError, match="at most 241 bytes, not 242"):
        kit.run(key, calling("é" * 121))
    assert calls == []
    assert kit.column(key, "recovery_point") is None
    with pytest.raises(Problem) as info:
        kit.run(key, calling("s" * 241))
    assert info.value.code is codes.UNAVAILABLE
    assert len(calls) == 1
    assert kit.column(key, "recovery_point") == "s" * 241 + " called undone"


def test_a_phase_that_was_undone_runs_again(kit: Kit, key: str) -> None:
    async def remove(tx: Any) -> None:
        await execute(tx, f"DELETE FROM shop_order WHERE item = '{key}'")

    async def handler(phases: Any) -> phased.Response:
        await done(phases.transaction("reserved", lambda tx: insert(tx, key)))
        if not phases.is_resumed:
            await done(phases.undo("reserved", remove))
            raise RuntimeError("later")
        return phased.Response(201)

    with pytest.raises(RuntimeError, match="later"):
        kit.run(key, handler)
    assert kit.rows(key) == 0
    assert kit.run(key, handler).outcome == "stored"
    assert kit.rows(key) == 1


def lose_first_owner(kit: Kit, key: str) -> None:
    """Let an owner end of whose call nothing is known."""

    async def handler(phases: Any) -> phased.Response:
        await done(phases.provider_key("charge"))
        raise RuntimeError("the process is in trouble")

    with pytest.raises(RuntimeError, match="in trouble"):
        kit.run(key, handler)


def test_the_refusal_of_a_repeated_call_is_not_trusted(kit: Kit, key: str) -> None:
    lose_first_owner(kit, key)
    kit.provider.decide = lambda _: "decline"
    refused(kit, key, codes.TIMEOUT)
    assert kit.column(key, "state") == "in_progress"

    async def look_up(asked: str) -> Any:
        return find(kit.provider.url, asked)

    # The provider does not know the key, but an earlier call may still arrive.
    refused(kit, key, codes.TIMEOUT, look_up=look_up)
    result = kit.pay(key, remembers_refusals=True)
    assert (result.outcome, result.response.status) == ("stored", 402)


def test_a_look_up_finds_the_outcome_of_a_call_that_was_lost(kit: Kit, key: str) -> None:
    kit.provider.decide = lambda _: "lost"

    async def look_up(asked: str) -> Any:
        return find(kit.provider.url, asked)

    assert kit.pay(key, look_up=look_up).outcome == "stored"
    assert len(kit.provider.calls) == 1


def test_no_error_is_stored_while_an_outcome_is_unknown(kit: Kit, key: str) -> None:
    kit.provider.decide = lambda _: "fail"

    async def handler(phases: Any) -> phased.Response:
        async def call(asked: str) -> Any:
            return charge(kit.provider.url, asked)

        with pytest.raises(Problem):
            await done(phases.call("charge", call))
        raise Problem(codes.CONFLICT, "the handler gives up")

    with pytest.raises(Problem) as info:
        kit.run(key, handler)
    assert info.value.code is codes.CONFLICT
    assert kit.column(key, "state") == "in_progress"
    assert kit.column(key, "lease_until <= clock_timestamp()")


def test_a_call_that_is_cancelled_is_unknown(shared: str, key: str) -> None:
    kit = Kit("psycopg", shared)

    async def handler(phases: Any) -> phased.Response:
        begun = asyncio.Event()

        async def call(_: str) -> None:
            begun.set()
            await asyncio.Event().wait()

        calling = asyncio.ensure_future(phases.call("charge", call))
        await begun.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        raise Problem(codes.CONFLICT, "the handler gives up")

    try:
        with pytest.raises(Problem):
            kit.run(key, handler)
        assert kit.column(key, "state") == "in_progress"
    finally:
        kit.close()


def test_a_call_in_a_transaction_is_refused_before_it_waits_for_a_connection(
    kit: Kit, key: str
) -> None:
    calls: list[str] = []

    async def handler(phases: Any) -> phased.Response:
        async def call(_: Any) -> None:
            await done(phases.call("charge", calls.append))

        with pytest.raises(RuntimeError, match="a phase is open"):
            await done(phases.transaction("reserved", call))
        tx = await done(phases.last())
        with pytest.raises(RuntimeError, match="the last phase is open"):
            await call(tx)
        return phased.Response(201)

    assert kit.run(key, handler).outcome == "stored"
    assert calls == []


def test_a_call_runs_beside_a_phase(shared: str, key: str) -> None:
    kit = Kit("psycopg", shared)

    async def handler(phases: Any) -> phased.Response:
        called = asyncio.Event()

        async def call(_: str) -> str:
            called.set()
            return "called"

        async def wait(_: Any) -> None:
            await called.wait()

        phase = asyncio.ensure_future(phases.transaction("reserved", wait))
        assert await phases.call("charge", call) == "called"
        await phase
        return phased.Response(201)

    try:
        assert kit.run(key, handler).outcome == "stored"
    finally:
        kit.close()


def test_one_call_of_a_step_runs_at_a_time(shared: str, key: str) -> None:
    kit = Kit("psycopg", shared)

    async def handler(phases: Any) -> phased.Response:
        refuses, calls = asyncio.Event(), asyncio.Event()

        async def decline(_: str) -> None:
            calls.set()
            await refuses.wait()
            await refuse()

        first = asyncio.ensure_future(phases.call("charge", decline))
        await calls.wait()
        with pytest.raises(RuntimeError, match="a call of the step 'charge' is running"):
            await phases.call("charge", decline)
        refuses.set()
        await first
        return phased.Response(201)

    try:
        assert kit.run(key, handler).response.status == 409
    finally:
        kit.close()


def test_no_phase_prevents_the_record_of_a_call_that_is_never_repeated(
    shared: str, key: str
) -> None:
    kit = Kit("psycopg", shared)

    async def handler(phases: Any) -> phased.Response:
        called, ends = asyncio.Event(), asyncio.Event()

        async def call(_: str) -> str:
            called.set()
            await ends.wait()
            return "called"

        first = asyncio.ensure_future(phases.call("charge", call, recognizes_keys=False))
        await called.wait()
        with pytest.raises(RuntimeError, match="'charge', which is never repeated, is running"):
            await phases.transaction("reserved", lambda tx: insert(tx, key))
        with pytest.raises(RuntimeError, match="'charge', which is never repeated, is running"):
            await phases.last()
        with pytest.raises(RuntimeError, match="'charge', which is never repeated, is running"):
            await phases.call("notify", call, recognizes_keys=False)
        ends.set()
        assert await first == "called"
        assert phases.recovery_point == "charge"
        await phases.transaction("reserved", lambda tx: insert(tx, key))
        return phased.Response(201)

    try:
        assert kit.run(key, handler).outcome == "stored"
    finally:
        kit.close()


def test_a_refusal_is_stored_after_a_call_that_did_nothing_beside_a_phase(
    kit: Kit, key: str
) -> None:
    async def dead(asked: str) -> Any:
        return charge("http://127.0.0.1:1", asked)

    async def handler(phases: Any) -> phased.Response:
        await done(phases.transaction("reserved", lambda tx: insert(tx, key)))
        nothing = CallFailure.NOTHING_HAPPENED
        with pytest.raises(Problem):
            await done(phases.call("charge", dead, outcome=lambda _: nothing))
        raise Problem(codes.CONFLICT, "sold out")

    result = kit.run(key, handler)
    assert (result.outcome, result.response.status) == ("stored", 409)


async def refuse() -> None:
    """End a request beside a call or a phase of it."""
    raise Problem(codes.CONFLICT, "sold out")


def test_no_call_begins_after_the_end_of_its_request(shared: str, key: str) -> None:
    calls: list[str] = []

    async def run() -> None:
        async with AsyncConnectionPool(shared, min_size=1, max_size=1) as pool:
            beside: list[asyncio.Future[Any]] = []

            async def free(busy: Any) -> None:
                # The call and the response wait for the only connection.
                while pool.get_stats()["requests_waiting"] < 2:
                    await asyncio.sleep(0.01)
                await pool.putconn(busy)

            async def call(asked: str) -> None:
                calls.append(asked)

            async def handler(phases: Any) -> phased.Response:
                beside.append(asyncio.ensure_future(free(await pool.getconn())))
                beside.append(asyncio.ensure_future(phases.call("charge", call)))
                while pool.get_stats()["requests_waiting"] == 0:
                    await asyncio.sleep(0.01)
                await asyncio.gather(beside[1], refuse())
                return phased.Response(201)

            result = await phased.run_async(pool, handler, **request(key))
            assert (result.outcome, result.response.status) == ("stored", 409)
            with pytest.raises(EndedError):
                await beside[1]

    asyncio.run(run())
    assert calls == []


@pytest.mark.parametrize("step", ["key of the call", "record of the call", "commit of the phase"])
def test_neither_a_call_nor_a_commit_begins_if_the_request_ends_before(
    shared: str, key: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    calls: list[str] = []
    fetch, commit, flush = Owner._fetch, Owner.commit_phase, PsycopgUnit.flush

    async def run() -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        async def slow_fetch(*args: Any) -> Any:
            row = await fetch(*args)
            begun.set()
            await ended.wait()
            return row

        async def slow_commit(*args: Any) -> None:
            await commit(*args)
            begun.set()
            await ended.wait()

        async def slow_flush(unit: PsycopgUnit) -> None:
            begun.set()
            await ended.wait()
            await flush(unit)

        async def call(asked: str) -> None:
            calls.append(asked)

        async def handler(phases: Any) -> phased.Response:
            if step == "key of the call":
                monkeypatch.setattr(Owner, "_fetch", slow_fetch)
                used = phases.call("charge", call)
            elif step == "record of the call":
                monkeypatch.setattr(Owner, "commit_phase", slow_commit)
                used = phases.call("charge", call, recognizes_keys=False)
            else:
                monkeypatch.setattr(PsycopgUnit, "flush", slow_flush)
                used = phases.transaction("reserved", lambda tx: insert(tx, key))
            beside.append(asyncio.ensure_future(used))
            await begun.wait()
            await asyncio.gather(beside[0], refuse())
            return phased.Response(201)

        async with AsyncConnectionPool(shared, min_size=1, max_size=4) as pool:
            beside: list[asyncio.Future[Any]] = []
            result = await phased.run_async(pool, handler, **request(key))
            assert (result.outcome, result.response.status) == ("stored", 409)
            ended.set()
            # Not a FencedError: no commit was sent.
            with pytest.raises(EndedError):
                await beside[0]

    asyncio.run(run())
    assert calls == []


def test_a_call_did_nothing_if_the_handler_finds_that_out(kit: Kit, key: str) -> None:
    kit.provider.decide = lambda _: "fail"

    async def handler(phases: Any) -> phased.Response:
        async def call(asked: str) -> Any:
            return charge(kit.provider.url, asked)

        with pytest.raises(Problem):
            await done(phases.call("charge", call))
        assert phases.nothing_happened()
        raise Problem(codes.UNAVAILABLE, "the provider failed")

    with pytest.raises(Problem):
        kit.run(key, handler)
    assert kit.column(key, "state") is None


def test_a_provider_that_recognizes_no_keys_is_never_called_twice(kit: Kit, key: str) -> None:
    kit.provider.decide = lambda _: "lost"
    for _ in range(2):
        refused(kit, key, codes.OUTCOME_UNKNOWN, recognizes_keys=False)
        assert kit.column(key, "state") == "in_progress"
        assert kit.column(key, "recovery_point") == "charge called"

    async def look_up(asked: str) -> Any:
        return find(kit.provider.url, asked)

    assert kit.pay(key, recognizes_keys=False, look_up=look_up).outcome == "stored"
    assert len(kit.provider.calls) == 1
    assert kit.rows(key) == 2


def test_the_result_of_a_call_that_is_not_repeated_is_committed_at_once(kit: Kit, key: str) -> None:
    async def fail(phases: Any) -> phased.Response:
        async def call(asked: str) -> Any:
            return charge(kit.provider.url, asked)

        await done(phases.call("charge", call, recognizes_keys=False))
        raise RuntimeError("later")

    with pytest.raises(RuntimeError, match="later"):
        kit.run(key, fail)
    assert kit.column(key, "recovery_point") == "charge"
    assert kit.pay(key, recognizes_keys=False).outcome == "stored"
    assert len(kit.provider.calls) == 1


@pytest.mark.parametrize("recognizes_keys", [True, False])
@pytest.mark.parametrize("reserves", [False, True])
def test_a_call_that_did_nothing_releases_a_key_without_phases(
    kit: Kit, key: str, reserves: bool, recognizes_keys: bool
) -> None:
    async def dead(asked: str) -> Any:
        return charge("http://127.0.0.1:1", asked)

    async def handler(phases: Any) -> phased.Response:
        if reserves:
            await done(phases.transaction("reserved", lambda tx: insert(tx, key)))
        await done(
            phases.call(
                "charge",
                dead,
                outcome=lambda _: CallFailure.NOTHING_HAPPENED,
                recognizes_keys=recognizes_keys,
            )
        )
        return phased.Response(201)

    with pytest.raises(Problem) as info:
        kit.run(key, handler)
    assert info.value.code is codes.UNAVAILABLE
    assert kit.column(key, "state") == ("in_progress" if reserves else None)

    async def again(phases: Any) -> phased.Response:
        async def call(asked: str) -> Any:
            return charge(kit.provider.url, asked)

        await done(phases.call("charge", call, recognizes_keys=recognizes_keys))
        return phased.Response(201)

    assert kit.run(key, again).outcome == "stored"
    assert len(kit.provider.calls) == 1


def test_a_call_that_did_nothing_does_not_release_the_key_of_another(kit: Kit, key: str) -> None:
    kit.provider.decide = lambda _: "lost"

    async def handler(phases: Any) -> phased.Response:
        async def call(asked: str) -> Any:
            return charge(kit.provider.url, asked)

        async def fail(_: str) -> None:
            raise RuntimeError("refused")

        with pytest.raises(Problem):
            await done(phases.call("charge", call))
        nothing = CallFailure.NOTHING_HAPPENED
        await done(phases.call("notify", fail, outcome=lambda _: nothing))
        return phased.Response(201)

    with pytest.raises(Problem) as info:
        kit.run(key, handler)
    assert info.value.code is codes.UNAVAILABLE
    assert kit.column(key, "state") == "in_progress"


def test_nothing_happened_is_the_first_owners_to_say(kit: Kit, key: str) -> None:
    said: list[bool] = []

    async def handler(phases: Any) -> phased.Response:
        await done(phases.provider_key("charge"))
        said.append(phases.nothing_happened())
        raise RuntimeError("the provider is down")

    with pytest.raises(RuntimeError, match="is down"):
        kit.run(key, handler)
    assert kit.column(key, "state") is None
    lose_first_owner(kit, key)
    with pytest.raises(RuntimeError, match="is down"):
        kit.run(key, handler)
    assert kit.column(key, "state") == "in_progress"
    assert said == [True, False]


@pytest.mark.parametrize("is_used", [False, True])
def test_a_mistake_of_the_client_releases_a_key_that_was_not_used(
    kit: Kit, key: str, is_used: bool
) -> None:
    async def handler(phases: Any) -> phased.Response:
        if is_used:
            await done(phases.provider_key("charge"))
        raise Problem(codes.MEMBER_INVALID, "not this amount", member="amount")

    with pytest.raises(Problem):
        kit.run(key, handler)
    assert kit.column(key, "state") == ("in_progress" if is_used else None)
