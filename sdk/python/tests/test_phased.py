"""Requests in phases on each driver: results, leases, killed processes, and lost commits."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import hapax
from hapax import EngineError, FencedError, Problem, codes, phased
from hapax.core.driver import done, run_blocking
from hapax.core.limits import RESPONSE_BYTES_MAX
from hapax.core.owner import EndedError
from hapax.drivers.asyncpg_unit import AsyncpgUnit

from .conftest import until
from .phased_kit import DRIVERS, Kit
from .proxy import Lose, Proxy
from .services.payment import POINTS, execute, insert, pay, request


def test_a_payment_is_made_once_and_replayed(kit: Kit, key: str) -> None:
    first, second = kit.pay(key), kit.pay(key)
    assert (first.outcome, second.outcome) == ("stored", "replayed")
    assert first.response.body == second.response.body == b"ch_1"
    assert len(kit.provider.calls) == 1
    assert kit.rows(key) == 2
    events = kit.db.execute(
        "SELECT tenant, headers FROM hapax.outbox_event WHERE aggregate_id = %s", [key]
    ).fetchall()
    ((tenant, headers),) = events
    assert tenant == "demo"
    assert "idempotency_key_hash" in headers


def test_the_next_owner_continues_after_the_last_phase(kit: Kit, key: str) -> None:
    seen: list[Any] = []

    async def handler(phases: Any) -> phased.Response:
        seen.append((phases.recovery_point, phases.is_resumed))

        async def reserve(tx: Any) -> dict[str, Any]:
            await insert(tx, key)
            return {"id": key, "parts": (1, 2)}

        seen.append(await done(phases.transaction("reserved", reserve)))
        if not phases.is_resumed:
            raise RuntimeError("the process is in trouble")
        return phased.Response(201)

    with pytest.raises(RuntimeError, match="in trouble"):
        kit.run(key, handler)
    assert kit.column(key, "lease_until <= clock_timestamp()")
    assert kit.column(key, "owner").startswith("python ")
    assert kit.run(key, handler).outcome == "stored"
    order = {"id": key, "parts": [1, 2]}
    assert seen == [(None, False), order, ("reserved", True), order]
    assert kit.rows(key) == 1


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("driver", ["psycopg", "psycopg-sync"])
def test_a_killed_process_leaves_one_charge_after_the_retry(
    shared: str, key: str, driver: str, point: str
) -> None:
    kit = Kit(driver, shared)
    try:
        command = [sys.executable, "-m", "tests.services.payment", driver, key, kit.provider.url]
        killed = subprocess.run(
            [*command, point],
            check=False,
            cwd=Path(__file__).parent.parent,
            env=os.environ | {"DATABASE_URL": shared},
        )
        assert killed.returncode == -9
        assert kit.column(key, "state") == "in_progress"

        async def handler(phases: Any) -> phased.Response:
            assert phases.is_resumed
            await pay(phases, key, kit.provider.url)
            return phased.Response(201)

        assert kit.run(key, handler, wait=30).outcome == "stored"
        assert len(kit.provider.charges) == 1
        assert len(set(kit.provider.calls)) == 1
        assert kit.rows(key) == 2
        events = "SELECT count(*) FROM hapax.outbox_event WHERE aggregate_id = %s"
        assert kit.value(events, key) == 1
        assert kit.column(key, "epoch") == 2
    finally:
        kit.close()


def test_a_late_owner_is_fenced_and_receives_the_new_response(kit: Kit, key: str) -> None:
    fenced: list[BaseException] = []

    async def resumed(phases: Any) -> phased.Response:
        assert (phases.recovery_point, phases.is_resumed) == ("reserved", True)
        return phased.Response(201, body=b"of the new owner")

    async def late(phases: Any) -> phased.Response:
        await done(phases.transaction("reserved", lambda tx: insert(tx, key)))
        kit.lapse(key)
        assert (await kit.apart(key, resumed)).outcome == "stored"
        with pytest.raises(FencedError, match="another process has taken the request over") as info:
            await done(phases.transaction("late", lambda tx: insert(tx, f"{key} late")))
        fenced.append(info.value)
        assert not phases.is_held()
        return phased.Response(201, body=b"of the late owner")

    result = kit.run(key, late)
    assert fenced
    assert (result.outcome, result.response.body) == ("replayed", b"of the new owner")
    assert kit.rows(key) == 1


def test_a_late_owner_without_a_new_response_receives_the_fence(kit: Kit, key: str) -> None:
    async def late(phases: Any) -> phased.Response:
        kit.db.execute(
            "UPDATE hapax.idempotency_key SET epoch = 2, lease_until = 'infinity' WHERE key = %s",
            [key],
        )
        await done(phases.transaction("late", lambda tx: insert(tx, key)))
        return phased.Response(201)

    with pytest.raises(FencedError):
        kit.run(key, late, wait=0)
    assert kit.rows(key) == 0
    assert kit.column(key, "epoch") == 2


def test_the_lease_is_renewed_while_the_handler_runs(kit: Kit, key: str) -> None:
    async def handler(phases: Any) -> phased.Response:
        first = kit.column(key, "lease_until")
        over = "SELECT clock_timestamp() > %s + interval '1 second'"
        while not kit.value(over, first):
            await kit.pause()
        assert not kit.column(key, "lease_until <= clock_timestamp()")
        assert phases.is_held()
        return phased.Response(201)

    assert kit.run(key, handler, lease=0.3).outcome == "stored"
    assert kit.column(key, "epoch") == 1


def test_another_request_waits_for_the_owner_and_is_refused(kit: Kit, key: str) -> None:
    async def other(_: Any) -> phased.Response:
        raise AssertionError("it ran")

    async def handler(_: Any) -> phased.Response:
        with pytest.raises(Problem) as info:
            await kit.apart(key, other, wait=0)
        assert info.value.code is codes.IN_PROGRESS
        return phased.Response(201)

    assert kit.run(key, handler).outcome == "stored"
    with pytest.raises(Problem) as info, ConnectionPool(kit.database, min_size=1) as pool:
        other_request = {**request(key), "payload": b"[]"}
        phased.run(pool, lambda _: phased.Response(201), **other_request)
    assert info.value.code is codes.PAYLOAD_MISMATCH


@pytest.mark.parametrize(("status", "count"), [(201, 1), (409, 0), (500, 0)])
def test_the_last_transaction_is_committed_with_the_response(
    kit: Kit, key: str, status: int, count: int
) -> None:
    async def handler(phases: Any) -> phased.Response:
        tx = await done(phases.last())
        await insert(tx, key)
        await done(tx.emit("order.created", {}, aggregate=("order", key)))
        return phased.Response(status)

    assert kit.run(key, handler).outcome == ("unstored" if status == 500 else "stored")
    assert kit.rows(key) == count
    events = "SELECT count(*) FROM hapax.outbox_event WHERE aggregate_id = %s"
    assert kit.value(events, key) == count


def test_a_last_transaction_that_begins_after_the_end_is_rolled_back(shared: str, key: str) -> None:
    async def free(pool: Any, busy: Any) -> None:
        # The last transaction and the response wait for the only connection.
        while pool.get_stats()["requests_waiting"] < 2:
            await asyncio.sleep(0.01)
        await pool.putconn(busy)

    async def run() -> None:
        async with AsyncConnectionPool(shared, min_size=1, max_size=1) as pool:
            tasks: list[asyncio.Future[Any]] = []

            async def handler(phases: Any) -> phased.Response:
                busy = await pool.getconn()
                tasks.append(asyncio.ensure_future(phases.last()))
                tasks.append(asyncio.ensure_future(free(pool, busy)))
                while pool.get_stats()["requests_waiting"] == 0:
                    await asyncio.sleep(0.01)
                return phased.Response(201)

            result = await phased.run_async(pool, handler, **request(key))
            assert result.outcome == "stored"
            with pytest.raises(EndedError):
                await tasks[0]
            await tasks[1]

    asyncio.run(run())


def test_a_phase_that_never_ends_returns_its_connection_at_the_end_of_the_request(
    shared: str, key: str
) -> None:
    async def run() -> None:
        async with AsyncConnectionPool(shared, min_size=1, max_size=1, timeout=5.0) as pool:
            tasks: list[asyncio.Future[Any]] = []

            async def handler(phases: Any) -> phased.Response:
                begun = asyncio.Event()

                async def work(tx: Any) -> None:
                    await insert(tx, key)
                    begun.set()
                    await asyncio.Event().wait()

                tasks.append(asyncio.ensure_future(phases.transaction("reserved", work)))
                await begun.wait()
                return phased.Response(201)

            result = await phased.run_async(pool, handler, **request(key))
            assert result.outcome == "stored"
            with pytest.raises(asyncio.CancelledError):
                await tasks[0]
            async with pool.connection() as connection:
                rows = await connection.execute(
                    "SELECT FROM shop_order WHERE item LIKE %s", [f"{key}%"]
                )
                assert await rows.fetchall() == []

    asyncio.run(run())


@pytest.mark.parametrize("is_async", [True, False])
def test_a_response_does_not_wait_long_for_a_connection_to_let_the_key_go(
    shared: str, key: str, monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    monkeypatch.setattr("hapax.core.phased_flow.COMMIT_RECOVERY", 0.1)
    settings: dict[str, Any] = {"min_size": 1, "max_size": 1, "timeout": 60.0}
    began = time.monotonic()

    async def run() -> None:
        async with AsyncConnectionPool(shared, **settings) as pool:
            held: list[Any] = []

            async def handler(_: Any) -> phased.Response:
                held.append(await pool.getconn())
                raise RuntimeError("in trouble")

            with pytest.raises(RuntimeError, match="in trouble"):
                await phased.run_async(pool, handler, **request(key))
            await pool.putconn(held.pop())

    def run_sync() -> None:
        with ConnectionPool(shared, **settings) as pool:
            held: list[Any] = []

            def handler(_: Any) -> phased.Response:
                held.append(pool.getconn())
                raise RuntimeError("in trouble")

            with pytest.raises(RuntimeError, match="in trouble"):
                phased.run(pool, handler, **request(key))
            pool.putconn(held.pop())

    if is_async:
        asyncio.run(run())
    else:
        run_sync()
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg", "sqlalchemy"])
def test_a_statement_that_runs_at_the_end_of_the_request_is_rolled_back(
    shared: str, key: str, driver: str
) -> None:
    kit = Kit(driver, shared)
    is_blocked = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"
    is_used = (
        "SELECT count(*) FROM pg_locks "
        "WHERE relation = 'shop_order'::regclass AND pid <> pg_backend_pid()"
    )
    phases_begun: list[asyncio.Future[Any]] = []

    try:
        with psycopg.connect(shared) as holder:
            holder.execute("LOCK TABLE shop_order IN EXCLUSIVE MODE")
            pid = holder.info.backend_pid

            async def handler(phases: Any) -> phased.Response:
                phase = phases.transaction("reserved", lambda tx: insert(tx, key))
                phases_begun.append(asyncio.ensure_future(phase))
                while not kit.value(is_blocked, pid):
                    await kit.pause()
                return phased.Response(201)

            # The lock is released after the response.
            assert kit.run(key, handler).outcome == "stored"
        until(lambda: not kit.value(is_used), "no transaction has the table")
        (phase,) = phases_begun
        assert phase.cancelled() or phase.exception() is not None
        assert kit.rows(key) == 0
        assert kit.column(key, "state") == "completed"
    finally:
        kit.close()


def test_a_phase_that_fails_writes_nothing_and_the_handler_may_go_on(kit: Kit, key: str) -> None:
    async def divide(tx: Any) -> None:
        await insert(tx, key)
        await execute(tx, "SELECT 1 / 0")

    async def swallow(tx: Any) -> None:
        await insert(tx, key)
        with pytest.raises(Exception, match="division by zero"):
            await execute(tx, "SELECT 1 / 0")

    async def end(tx: Any) -> None:
        await insert(tx, key)
        await execute(tx, "ROLLBACK")

    async def handler(phases: Any) -> phased.Response:
        for work in (divide, swallow, end):
            with pytest.raises(Exception):  # noqa: B017, PT011 - each driver has its own
                await done(phases.transaction("reserved", work))
        assert phases.recovery_point is None
        return phased.Response(201)

    assert kit.run(key, handler).outcome == "stored"
    assert kit.rows(key) == 0


@pytest.mark.parametrize("where", ["phase", "last"])
def test_a_handler_that_commits_is_not_asked_to_try_again(kit: Kit, key: str, where: str) -> None:
    async def commit(tx: Any) -> None:
        await insert(tx, key)
        await execute(tx, "COMMIT")

    async def handler(phases: Any) -> phased.Response:
        if where == "phase":
            await done(phases.transaction("reserved", commit))
        else:
            await commit(await done(phases.last()))
        return phased.Response(201)

    with pytest.raises(Problem, match="must neither commit nor roll back") as info:
        kit.run(key, handler)
    assert info.value.code is codes.INTERNAL
    assert kit.column(key, "lease_until <= clock_timestamp()")


def test_an_owner_that_lost_its_key_responds_with_what_is_stored(kit: Kit, key: str) -> None:
    def response(of: str) -> phased.Response:
        return phased.Response(201, [("location", f"/{of}")], b"the same body")

    async def resumed(_: Any) -> phased.Response:
        return response("new")

    async def late(_: Any) -> phased.Response:
        kit.lapse(key)
        assert (await kit.apart(key, resumed)).outcome == "stored"
        return response("late")

    result = kit.run(key, late)
    assert (result.outcome, result.response) == ("replayed", response("new"))


def test_a_response_that_is_too_long_does_not_say_that_nothing_was_changed(
    kit: Kit, key: str
) -> None:
    async def handler(phases: Any) -> phased.Response:
        await done(phases.transaction("reserved", lambda tx: insert(tx, key)))
        return phased.Response(201, body=bytes(RESPONSE_BYTES_MAX + 1))

    with pytest.raises(Problem, match="what this request has committed is kept") as info:
        kit.run(key, handler)
    assert info.value.code is codes.RESPONSE_TOO_LARGE
    assert kit.rows(key) == 1
    assert kit.column(key, "lease_until <= clock_timestamp()")


def test_phases_run_one_after_the_other_and_end_with_the_request(kit: Kit, key: str) -> None:
    kept: list[Any] = []

    async def handler(phases: Any) -> phased.Response:
        kept.append(phases)

        async def outer(_: Any) -> None:
            await done(phases.transaction("inner", lambda tx: insert(tx, key)))

        with pytest.raises(RuntimeError, match="a phase is open"):
            await done(phases.transaction("outer", outer))
        return phased.Response(201)

    assert kit.run(key, handler).outcome == "stored"
    with pytest.raises(EndedError):
        run_blocking(kept[0]._transaction("late", lambda tx: insert(tx, key)))


@pytest.mark.parametrize("status", [201, 409])
def test_a_transaction_accepts_no_event_after_its_phase(kit: Kit, key: str, status: int) -> None:
    kept: list[Any] = []

    async def handler(phases: Any) -> phased.Response:
        async def keep(tx: Any) -> None:
            kept.append(tx)

        await done(phases.transaction("reserved", keep))
        with pytest.raises(RuntimeError, match="the phase has ended"):
            await done(kept[0].emit("order.created", {}))
        kept.append(await done(phases.last()))
        return phased.Response(status)

    assert kit.run(key, handler).outcome == "stored"
    with pytest.raises(RuntimeError, match="the phase has ended"):
        kept[1]._emit("order.created", {})


def test_a_phase_and_a_call_have_different_names(kit: Kit, key: str) -> None:
    async def call(_: str) -> str:
        return "called"

    async def handler(phases: Any) -> phased.Response:
        assert await done(phases.call("first", call)) == "called"
        with pytest.raises(RuntimeError, match="'first' is the name of a phase and of a call"):
            await done(phases.transaction("first", lambda tx: insert(tx, key)))
        await done(phases.transaction("second", lambda tx: insert(tx, key)))
        with pytest.raises(RuntimeError, match="'second' is the name of a phase and of a call"):
            await done(phases.call("second", call))
        return phased.Response(201)

    assert kit.run(key, handler).outcome == "stored"
    assert kit.rows(key) == 1


@pytest.mark.parametrize("end", [" called", " undone", " called undone"])
def test_a_name_that_ends_like_a_record_is_refused(kit: Kit, key: str, end: str) -> None:
    calls: list[str] = []

    async def handler(phases: Any) -> phased.Response:
        with pytest.raises(ValueError, match="does not end with"):
            await done(phases.transaction(f"order{end}", lambda tx: insert(tx, key)))
        with pytest.raises(ValueError, match="does not end with"):
            await done(phases.call(f"order{end}", calls.append))
        await done(phases.transaction(f"order{end}.", lambda tx: insert(tx, key)))
        return phased.Response(201)

    assert kit.run(key, handler).outcome == "stored"
    assert (kit.rows(key), calls) == (1, [])


def test_a_call_with_the_name_of_a_phase_of_an_earlier_attempt_is_refused(
    kit: Kit, key: str
) -> None:
    calls: list[str] = []

    async def fail(phases: Any) -> phased.Response:
        await done(phases.transaction("charge", lambda tx: insert(tx, key)))
        raise RuntimeError("later")

    async def changed(phases: Any) -> phased.Response:
        with pytest.raises(RuntimeError, match="'charge' is the name of a phase and of a call"):
            await done(phases.call("charge", calls.append))
        return phased.Response(201)

    with pytest.raises(RuntimeError, match="later"):
        kit.run(key, fail)
    assert kit.run(key, changed).outcome == "stored"
    assert calls == []


def test_a_recovery_point_of_another_program_is_not_guessed_at(kit: Kit, key: str) -> None:
    async def fail(phases: Any) -> phased.Response:
        await done(phases.transaction("charged", lambda tx: insert(tx, key)))
        raise RuntimeError("later")

    async def reserve(phases: Any) -> phased.Response:
        await done(phases.transaction("reserved", lambda tx: insert(tx, key)))
        return phased.Response(201)

    async def go_on(phases: Any) -> phased.Response:
        await done(phases.transaction("charged", lambda tx: insert(tx, key)))
        await done(phases.transaction("recorded", lambda tx: insert(tx, f"{key} 2")))
        return phased.Response(201)

    with pytest.raises(RuntimeError, match="later"):
        kit.run(key, fail)
    kit.db.execute("UPDATE hapax.idempotency_key SET recovery_data = NULL WHERE key = %s", [key])
    with pytest.raises(RuntimeError, match="stores no results of phases"):
        kit.run(key, reserve)
    assert kit.run(key, go_on).outcome == "stored"
    assert kit.rows(key) == 2


@pytest.mark.parametrize("lose", [Lose.COMMIT_REQUEST, Lose.COMMIT_RESPONSE])
@pytest.mark.parametrize("what", ["phase", "response", "last"])
def test_a_commit_whose_result_is_lost_is_not_guessed_at(
    kit: Kit, key: str, what: str, lose: Lose, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSSLMODE", "disable")
    parts = psycopg.conninfo.conninfo_to_dict(kit.database)
    proxy = Proxy(str(parts["host"]), int(str(parts.get("port", 5432))))
    url = f"postgres://{parts['user']}@127.0.0.1:{proxy.port}/{parts['dbname']}"
    losing = [lose]

    def lose_next() -> None:
        if losing:
            proxy.lose(losing.pop())

    async def handler(phases: Any) -> phased.Response:
        async def reserve(tx: Any) -> None:
            await insert(tx, key)
            if what == "phase":
                lose_next()

        await done(phases.transaction("reserved", reserve))
        if what == "last":
            await insert(await done(phases.last()), f"{key} 2")
        if what != "phase":
            lose_next()
        return phased.Response(201)

    is_gone = what == "phase" or (what == "last" and lose is Lose.COMMIT_REQUEST)
    if is_gone:
        with pytest.raises(Problem) as info:
            kit.run(key, handler, url)
        assert info.value.code is codes.UNAVAILABLE
    else:
        assert kit.run(key, handler, url).outcome == "stored"
    assert proxy.lost == 1
    proxy.close()
    assert kit.run(key, handler).response.status == 201
    assert kit.rows(key) == (2 if what == "last" else 1)


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg", "sqlalchemy"])
def test_a_request_that_is_cancelled_after_a_lost_commit_keeps_its_key(
    shared: str, key: str, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSSLMODE", "disable")
    kit = Kit(driver, shared)
    parts = psycopg.conninfo.conninfo_to_dict(shared)
    proxy = Proxy(str(parts["host"]), int(str(parts.get("port", 5432))))
    url = f"postgres://{parts['user']}@127.0.0.1:{proxy.port}/{parts['dbname']}"

    async def lose(tx: Any) -> None:
        await insert(tx, key)
        proxy.lose(Lose.COMMIT_RESPONSE)

    async def handler(phases: Any) -> phased.Response:
        with pytest.raises(Problem, match="the result of a commit was lost"):
            await phases.transaction("reserved", lose)
        raise asyncio.CancelledError

    async def retry(phases: Any) -> phased.Response:
        await phases.transaction("reserved", lambda tx: insert(tx, key))
        return phased.Response(201)

    try:
        with pytest.raises(asyncio.CancelledError):
            kit.run(key, handler, url)
        assert kit.column(key, "recovery_point") == "reserved"
        assert kit.run(key, retry, wait=30).outcome == "stored"
        assert kit.rows(key) == 1
    finally:
        proxy.close()
        kit.close()


def test_a_commit_that_takes_too_long_is_not_guessed_at(
    shared: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = Kit("asyncpg", shared)
    commit_with = AsyncpgUnit.commit_with

    async def late(unit: AsyncpgUnit, *args: Any) -> None:
        monkeypatch.setattr(AsyncpgUnit, "commit_with", commit_with)
        await commit_with(unit, *args)
        # As with a `command_timeout` of the pool.
        raise asyncio.TimeoutError

    async def handler(phases: Any) -> phased.Response:
        if not phases.is_resumed:
            monkeypatch.setattr(AsyncpgUnit, "commit_with", late)
            with pytest.raises(Problem, match="the result of a commit was lost"):
                await phases.transaction("reserved", lambda tx: insert(tx, key))
        await phases.transaction("reserved", lambda tx: insert(tx, key))
        return phased.Response(201)

    try:
        with pytest.raises(Problem):
            kit.run(key, handler)
        assert kit.run(key, handler).outcome == "stored"
        assert kit.rows(key) == 1
    finally:
        kit.close()


def test_a_commit_that_is_cancelled_is_not_guessed_at(shared: str, key: str) -> None:
    kit = Kit("asyncpg", shared)
    row = "SELECT FROM hapax.idempotency_key WHERE key = %s FOR UPDATE"
    is_blocked = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))"

    async def reserve(phases: Any) -> None:
        await phases.transaction("reserved", lambda tx: insert(tx, key))

    async def cancel(phases: Any) -> phased.Response:
        with psycopg.connect(shared) as holder:
            holder.execute(row, [key])
            phase = asyncio.ensure_future(reserve(phases))
            while not kit.value(is_blocked, holder.info.backend_pid):
                await kit.pause()
            phase.cancel()
            with pytest.raises(asyncio.CancelledError):
                await phase
        with pytest.raises(Problem) as info:
            await reserve(phases)
        assert info.value.code is codes.UNAVAILABLE
        return phased.Response(201)

    async def retry(phases: Any) -> phased.Response:
        await reserve(phases)
        return phased.Response(201)

    try:
        result = kit.run(key, cancel, lease=60.0)
        assert (result.outcome, result.response.status) == ("unstored", 503)
        assert kit.run(key, retry).outcome == "stored"
        assert kit.rows(key) == 1
    finally:
        kit.close()


# A pool of asyncpg resets the name.
@pytest.mark.parametrize("driver", [driver for driver in DRIVERS if driver != "asyncpg"])
@pytest.mark.parametrize("own", ["", "shop"])
def test_a_connection_without_a_name_gets_the_one_that_the_doctor_lists(
    database: str, key: str, driver: str, own: str
) -> None:
    kit = Kit(driver, database)
    names: list[str] = []

    async def handler(_: Any) -> phased.Response:
        names.extend(
            name
            for (name,) in kit.db.execute(
                "SELECT application_name FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() "
                "AND backend_type = 'client backend'"
            )
        )
        return phased.Response(201)

    try:
        if own:
            name = f"ALTER DATABASE {kit.db.info.dbname} SET application_name = {own}"
            kit.db.execute(name.encode())
        assert kit.run(key, handler).outcome == "stored"
        # The pool may have opened another connection, which has entered no key.
        assert set(names) - {""} == {own or f"hapax-python/{hapax.__version__} contract=2"}
    finally:
        kit.close()


def test_an_engine_of_the_other_kind_is_refused(database: str) -> None:
    with (
        ConnectionPool(database, min_size=1) as pool,
        pytest.raises(EngineError, match="run_async needs an asynchronous engine"),
    ):
        asyncio.run(phased.run_async(pool, lambda _: phased.Response(201), **request("k")))  # type: ignore[arg-type,return-value]
