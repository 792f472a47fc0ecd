"""The phases of a request, as its handler sees them.

Results of phases are stored with the key, so that the next owner of the key continues after the
last one.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from . import codes
from .driver import Unit, done, run_blocking
from .event import json_text
from .limits import KEY_BYTES_MAX, PHASE_DATA_BYTES_MAX, RETRY_AFTER
from .owner import Owner
from .problem import Problem
from .tx import AsyncTx, BaseTx, Tx

_CALLED = " called"
"""Ends the name of the phase that precedes a call which is never repeated."""
_UNDONE = " undone"
"""Ends the name of the phase that undoes another one."""
_STEP_BYTES_MAX = KEY_BYTES_MAX - len(_CALLED + _UNDONE)
"""Maximum length of the name of a step whose call is never repeated in bytes."""
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""NUL in JSON."""
_within: ContextVar[BasePhases | None] = ContextVar("hapax_within", default=None)
"""The phases in whose transaction the code runs. A call beside a phase does not run in it."""


class CallFailure(Enum):
    """What an error of a call to a provider means, unless it is a refusal."""

    NOTHING_HAPPENED = "nothing_happened"
    """The call had no effect, for example because no connection was established."""
    UNKNOWN = "unknown"
    """The provider may have executed the call."""


Outcome = Callable[[Exception], "Problem | CallFailure"]


def usual_outcome(error: Exception) -> Problem | CallFailure:
    """Return what an error means: a :class:`Problem` below 500 is a refusal."""
    if isinstance(error, Problem) and error.status < 500:
        return error
    return CallFailure.UNKNOWN


@dataclass(frozen=True)
class Provider:
    """How a provider behaves; see :meth:`AsyncPhases.call`."""

    outcome: Outcome = usual_outcome
    look_up: Callable[[str], Any] | None = None
    recognizes_keys: bool = True
    remembers_refusals: bool = False


class BasePhases:
    """The phases of a request. They run one after the other."""

    def __init__(self, owner: Owner, point: str | None, data: object) -> None:
        self._owner = owner
        self._point = point
        self._results: dict[str, Any] = dict(data) if isinstance(data, dict) else {}
        # The last phase was recorded by a program that stores no results.
        self._is_foreign = point is not None and point not in self._results
        self._is_open = False
        self._is_used = owner.owned.is_resumed
        self._came_to_nothing = False
        self._last_phase: tuple[Unit, BaseTx] | None = None
        # The task that runs the work of the open phase.
        self._worker: asyncio.Task[Any] | None = None
        # The steps whose provider keys this owner has requested, and those with an unknown outcome.
        self._requested: set[str] = set()
        self._unknown: set[str] = set()
        # The steps whose calls are running, and whether each one is never repeated.
        self._running: dict[str, bool] = {}
        # Whether each name that this owner has used is that of a phase or of a call.
        self._uses: dict[str, str] = {}

    @property
    def recovery_point(self) -> str | None:
        """The name of the last committed phase, of this attempt or an earlier one."""
        return self._point

    @property
    def is_resumed(self) -> bool:
        """Whether the key had an earlier owner that did not finish. A call of it may still arrive.

        Every later owner has the key under a higher epoch.
        """
        return self._owner.owned.is_resumed

    @property
    def tenant(self) -> str:
        """The tenant of the key."""
        return self._owner.owned.scope[0]

    @property
    def key(self) -> str:
        """The idempotency key."""
        return self._owner.owned.scope[2]

    def is_held(self) -> bool:
        """Whether the key certainly still belongs to this owner, by the clock of this process."""
        return self._owner.is_held()

    def nothing_happened(self) -> bool:
        """Declare that the request had no effect in any other system, and that no call is running.

        If the handler then fails, the key is released. Rows of committed phases stay: undo them
        before. A later phase or call revokes it. Return ``False``, and the key stays in progress,
        if it had an earlier owner.
        """
        self._came_to_nothing = not self.is_resumed
        if self._came_to_nothing:
            self._unknown.clear()
        return self._came_to_nothing

    async def _transaction(self, name: str, work: Callable[[Any], Any]) -> Any:
        self._owner.check()
        _check_end(name)
        self._use(name, "phase")
        if self._is_recorded(name):
            return self._results[name]

        async def step(tx: Any, results: dict[str, Any]) -> Any:
            results[name] = _json(await done(work(tx)))
            return results[name]

        return await self._commit(name, step)

    async def _undo(self, name: str, work: Callable[[Any], Any]) -> Any:
        self._owner.check()
        _check_end(name)
        return await self._undo_recorded(name, work)

    async def _undo_recorded(
        self, name: str, work: Callable[[Any], Any], call: str | None = None
    ) -> Any:
        undone = name + _UNDONE

        async def step(tx: Any, results: dict[str, Any]) -> Any:
            result = await done(work(tx))
            results.pop(name, None)
            results[undone] = None
            return result

        return await self._commit(undone, step, call)

    async def _call(self, step: str, run: Callable[[str], Any], provider: Provider) -> Any:
        self._owner.check()
        _check_end(step)
        self._use(step, "call")
        mark = step + _CALLED
        if step in self._results:
            if step == self._point and mark not in self._results:
                # Only a call that is never repeated is a recovery point.
                raise _two_uses(step)
            return self._results[step]
        if not provider.recognizes_keys and mark not in self._results:
            _check_step(step)
        if step in self._running:
            raise RuntimeError(
                f"a call of the step {step!r} is running: end it before the next one"
            )
        self._running[step] = not provider.recognizes_keys
        try:
            return await self._run(step, run, provider)
        finally:
            del self._running[step]

    async def _run(self, step: str, run: Callable[[str], Any], provider: Provider) -> Any:
        mark = step + _CALLED
        is_first = not provider.recognizes_keys or not (self.is_resumed or step in self._requested)
        key = await self._provider_key(step)
        if not provider.recognizes_keys:
            if mark in self._results:
                return await self._look_up(step, key, provider, None)
            await self._record(step, mark, None)
        # Also if the handler cancels the call. It is unknown before the check, so that a request
        # which ends in another thread stores no error.
        self._unknown.add(step)
        self._owner.check()
        try:
            value = await done(run(key))
        except Exception as error:
            self._owner.check()
            return await self._failed(step, key, provider, error, is_first=is_first)
        return await self._succeeded(step, value, provider)

    async def _failed(
        self, step: str, key: str, provider: Provider, error: Exception, *, is_first: bool
    ) -> Any:
        outcome = provider.outcome(error)
        if isinstance(outcome, Problem) and (is_first or provider.remembers_refusals):
            self._unknown.discard(step)
            raise outcome from (None if outcome is error else error)
        if outcome is CallFailure.NOTHING_HAPPENED and is_first:
            self._unknown.discard(step)
            if not provider.recognizes_keys:
                # The mark would forbid the call in the next attempt.
                await self._undo_recorded(step + _CALLED, lambda _: None, step)
            if len(self._requested) == 1 and not self._has_effect():
                self.nothing_happened()
            detail = f'the provider of the step "{step}" failed and has done nothing; try again'
            raise Problem(codes.UNAVAILABLE, detail, retry_after=RETRY_AFTER) from error
        return await self._look_up(step, key, provider, error)

    async def _look_up(
        self, step: str, key: str, provider: Provider, cause: Exception | None
    ) -> Any:
        """Ask the provider for the outcome, which otherwise stays unknown."""
        self._unknown.add(step)
        if provider.look_up is None:
            raise _outcome_unknown(step, provider) from cause
        try:
            found = await done(provider.look_up(key))
        except Exception as error:
            self._owner.check()
            outcome = usual_outcome(error)
            if isinstance(outcome, Problem):
                self._unknown.discard(step)
                raise
            raise _outcome_unknown(step, provider) from (cause or error)
        if found is None:
            raise _outcome_unknown(step, provider) from cause
        return await self._succeeded(step, found, provider)

    async def _succeeded(self, step: str, result: Any, provider: Provider) -> Any:
        value = _json(result)
        # A result that cannot be stored is refused here, not by the next phase. The outcome stays
        # unknown, so that no error is stored.
        _data(step, {**self._results, step: value})
        self._unknown.discard(step)
        if provider.recognizes_keys:
            # Stored with the next phase. Until then, a repeated call returns the same.
            self._results[step] = value
            return value
        return await self._record(step, step, value)

    async def _record(self, call: str, name: str, value: Any) -> Any:
        """Commit a phase without rows, for a call that is never repeated."""

        async def step(_: Any, results: dict[str, Any]) -> Any:
            results[name] = value
            return value

        return await self._commit(name, step, call)

    async def _provider_key(self, step: str) -> str:
        self._check_outside()
        self._requested.add(step)
        self._came_to_nothing = False
        return await self._owner.provider_key(step)

    async def _last(self) -> Any:
        self._begin()
        self._is_open = True
        try:
            unit = await self._owner.open()
        finally:
            self._is_open = False
        tx = self._tx(unit)
        self._last_phase = unit, tx
        return tx

    async def _commit(
        self,
        name: str,
        work: Callable[[Any, dict[str, Any]], Awaitable[Any]],
        call: str | None = None,
    ) -> Any:
        """Commit a phase, of the step ``call`` if it records one.

        ``work`` changes the results, which count once it is committed.
        """
        self._begin(call)
        _check_name(name)
        # A phase that fails may have been meant to undo something.
        self._came_to_nothing = False
        self._is_open = True
        results, before = dict(self._results), set(self._results)
        try:
            unit = await self._owner.open()
            tx = self._tx(unit)
            try:
                result = await self._worked(work(tx, results))
                data, events = _data(name, results), json.dumps(tx._close())
            except BaseException:
                tx._close()
                await unit.rollback()
                raise
            await self._commit_phase(unit, name, data, events)
        finally:
            self._is_open = False
        # A call that runs beside the phase may have recorded its result meanwhile.
        for known in before - results.keys():
            self._results.pop(known, None)
        self._results.update(results)
        self._point = name
        return result

    async def _worked(self, work: Awaitable[Any]) -> Any:
        """Run the work of a phase."""
        within = _within.set(self)
        if self._owner.driver.is_async:
            self._worker = asyncio.current_task()
        try:
            return await work
        finally:
            self._worker = None
            _within.reset(within)

    def _end(self) -> None:
        """Cancel a phase that has not ended with its request, so that it keeps no connection.

        Work in another thread cannot be cancelled.
        """
        if self._worker is not None and self._worker is not asyncio.current_task():
            self._worker.cancel()

    async def _commit_phase(self, unit: Unit, name: str, data: str, events: str) -> None:
        # If the handler is cancelled now, the phase may be committed.
        was_used, self._is_used = self._is_used, True
        try:
            await self._owner.commit_phase(unit, name, data, events)
        except Exception:
            if self._owner.lost is None:
                self._is_used = was_used
            raise

    def _tx(self, unit: Unit) -> BaseTx:
        kind = AsyncTx if self._owner.driver.is_async else Tx
        return kind(unit, self.tenant, self.key)

    def _begin(self, call: str | None = None) -> None:
        """Check that a phase can begin."""
        self._owner.check()
        self._check_open(is_open=self._is_open)
        for step, is_recorded in self._running.items():
            # An open phase would prevent the record of the result, and the call is never repeated.
            if is_recorded and step != call:
                raise RuntimeError(
                    f"a call of the step {step!r}, which is never repeated, is running: end it "
                    "before the next phase"
                )

    def _check_outside(self) -> None:
        """Refuse a call in a transaction, which would wait for a second connection."""
        self._check_open(is_open=self._is_open and _within.get() is self)

    def _check_open(self, *, is_open: bool) -> None:
        if is_open:
            raise RuntimeError("a phase is open: end it before the next phase or call")
        if self._last_phase is not None:
            raise RuntimeError("the last phase is open: respond")

    def _use(self, name: str, use: str) -> None:
        """Refuse the name of a phase for a call, and that of a call for a phase."""
        other = self._uses.setdefault(name, use)
        if other != use:
            raise _two_uses(name)

    def _is_recorded(self, name: str) -> bool:
        if self._is_foreign:
            if name != self._point:
                raise RuntimeError(
                    f"the key is at the recovery point {self._point!r} of a program that stores no "
                    f"results of phases, so it is not known whether {name!r} was committed: read "
                    "phases.recovery_point, and continue after it"
                )
            self._is_foreign = False
            self._results[name] = None
        return name in self._results

    def _has_effect(self) -> bool:
        """Whether rows of a committed phase are there."""
        return self._is_foreign or any(not name.endswith(_UNDONE) for name in self._results)

    def _is_untouched(self) -> bool:
        """Whether the key can be released as if it had never been used."""
        return not self._is_used and not self._requested and self._point is None


class AsyncPhases(BasePhases):
    """The phases of a request, for coroutines."""

    async def transaction(self, name: str, work: Callable[[AsyncTx], Awaitable[Any]]) -> Any:
        """Run ``work`` in a transaction, and commit it as the phase ``name``.

        Its events and its result are part of the commit. If the phase was committed before, by this
        owner or an earlier one, ``work`` does not run, and its result is returned. Call no other
        system in it. An exception rolls it back.

        Args:
            name: the name of the phase, 1 to 255 bytes. It does not end with `` called`` or
                `` undone``, and no call has the same name.
            work: receives the transaction. Its result is returned as JSON returns it: return what a
                later phase needs, and no secrets.

        Raises:
            FencedError: another owner has the key. Nothing was committed.
        """
        return await self._transaction(name, work)

    async def undo(self, name: str, work: Callable[[AsyncTx], Awaitable[Any]]) -> Any:
        """Undo the committed phase ``name`` in a transaction.

        After it, the phase counts as not committed: the next attempt runs it again.
        """
        return await self._undo(name, work)

    async def call(
        self,
        step: str,
        run: Callable[[str], Awaitable[Any]],
        *,
        outcome: Outcome = usual_outcome,
        look_up: Callable[[str], Awaitable[Any]] | None = None,
        recognizes_keys: bool = True,
        remembers_refusals: bool = False,
    ) -> Any:
        """Call a provider, under a key that is the same for every attempt, and return its result.

        The result is stored with the next phase: return what the handler needs, and no secrets.

        Args:
            step: the name of the step, at most 241 bytes if the provider does not recognize keys.
                It does not end with `` called`` or `` undone``.
            run: calls the provider once, with the key that it is passed.
            outcome: what an exception of ``run`` means: a :class:`Problem` is a refusal. Default: a
                :class:`Problem` with a status below 500 is a refusal, and the outcome after any
                other exception is unknown.
            look_up: asks the provider what has become of the key, if the outcome is unknown. It
                returns ``None`` if the provider does not know the key, and raises a
                :class:`Problem` if it has refused the call.
            recognizes_keys: whether the provider recognizes a repeated call by its key. Otherwise
                the call is recorded before it is made, and never repeated: only ``look_up`` finds
                its outcome.
            remembers_refusals: whether the provider stores its refusals under the key, so that the
                refusal of a repeated call is the outcome of the first one.

        Raises:
            Problem: the refusal; or the outcome is unknown. The key then stays in progress, and a
                retry finds the outcome out.
            ValueError: the name of the step is too long, or ends like a record, and nothing was
                called; or the result cannot be stored, and the outcome stays unknown.
        """
        provider = Provider(outcome, look_up, recognizes_keys, remembers_refusals)
        return await self._call(step, run, provider)

    async def provider_key(self, step: str) -> str:
        """Return the key for a step at a provider, which is the same for every attempt.

        It has the form of a UUID. After it was requested, a failure does not release the key of the
        request, because the provider may have received it. :meth:`call` requests it.
        """
        return await self._provider_key(step)

    async def last(self) -> AsyncTx:
        """Open the last transaction, which is committed with the response.

        If the response is a refusal or a failure, it is rolled back. It is optional.
        """
        tx: AsyncTx = await self._last()
        return tx


class Phases(BasePhases):
    """The phases of a request, for functions that are not coroutines."""

    def transaction(self, name: str, work: Callable[[Tx], Any]) -> Any:
        """Run and commit a phase; see :meth:`AsyncPhases.transaction`."""
        return run_blocking(self._transaction(name, work))

    def undo(self, name: str, work: Callable[[Tx], Any]) -> Any:
        """Undo a committed phase; see :meth:`AsyncPhases.undo`."""
        return run_blocking(self._undo(name, work))

    def call(
        self,
        step: str,
        run: Callable[[str], Any],
        *,
        outcome: Outcome = usual_outcome,
        look_up: Callable[[str], Any] | None = None,
        recognizes_keys: bool = True,
        remembers_refusals: bool = False,
    ) -> Any:
        """Call a provider; see :meth:`AsyncPhases.call`."""
        provider = Provider(outcome, look_up, recognizes_keys, remembers_refusals)
        return run_blocking(self._call(step, run, provider))

    def provider_key(self, step: str) -> str:
        """Return the key for a step at a provider; see :meth:`AsyncPhases.provider_key`."""
        return run_blocking(self._provider_key(step))

    def last(self) -> Tx:
        """Open the last transaction; see :meth:`AsyncPhases.last`."""
        tx: Tx = run_blocking(self._last())
        return tx


def _outcome_unknown(step: str, provider: Provider) -> Problem:
    what = f'the outcome of the step "{step}" is unknown'
    if not provider.recognizes_keys and provider.look_up is None:
        return Problem(codes.OUTCOME_UNKNOWN, f"{what}, and the call is not repeated")
    detail = f"{what}; send the same request again, which finds it out"
    return Problem(codes.TIMEOUT, detail, retry_after=RETRY_AFTER)


def _two_uses(name: str) -> RuntimeError:
    return RuntimeError(
        f"{name!r} is the name of a phase and of a call: the second one would not run, because its "
        "result would be that of the first one; use two names"
    )


def _check_name(name: str) -> None:
    length = len(name.encode())
    if not 1 <= length <= KEY_BYTES_MAX:
        raise ValueError(f"the name of a phase has 1 to {KEY_BYTES_MAX} bytes, not {length}")


def _check_end(name: str) -> None:
    """Refuse a name that would be taken for a record of this module."""
    for end in (_CALLED, _UNDONE):
        if name.endswith(end):
            raise ValueError(
                f'the name of a phase or a step does not end with "{end}", as {name!r} does: such '
                "names are those of records of calls and of undone phases"
            )


def _check_step(step: str) -> None:
    """Refuse a step whose call could be recorded, and the record not undone after the call."""
    length = len(step.encode())
    if length > _STEP_BYTES_MAX:
        raise ValueError(
            f"the name of a step whose call is never repeated has at most {_STEP_BYTES_MAX} bytes, "
            f"not {length}"
        )


def _json(value: object) -> Any:
    """Return a value as a later owner of the key reads it."""
    return json.loads(json_text(value))


def _data(name: str, results: dict[str, Any]) -> str:
    """Return the results of phases as they are stored."""
    text = json.dumps(results, ensure_ascii=False, allow_nan=False)
    try:
        length = len(text.encode())
    except UnicodeEncodeError as error:
        raise _unstorable(name, "a character that is not Unicode, a lone surrogate") from error
    if _NUL.search(text):
        raise _unstorable(name, "the character NUL")
    if length + _exponents(text) > PHASE_DATA_BYTES_MAX:
        raise ValueError(
            f"with {name!r}, the results have more than {PHASE_DATA_BYTES_MAX} bytes: return only "
            "what the handler needs, such as an id"
        )
    return json.dumps(results, separators=(",", ":"), allow_nan=False)


def _unstorable(name: str, what: str) -> ValueError:
    return ValueError(
        f"the result of {name!r} contains {what}, which PostgreSQL does not store in JSON: remove "
        "it, or return the text in another form, such as base64"
    )


def _exponents(text: str) -> int:
    """Return how much longer JSON is in PostgreSQL, which writes numbers without exponents."""
    longer = 0

    def write(number: str) -> None:
        nonlocal longer
        longer += len(format(Decimal(number), "f")) - len(number)

    json.loads(text, parse_float=write)
    return longer
