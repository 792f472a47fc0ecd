"""Integration with FastAPI.

.. code-block:: python

    app = FastAPI()
    hapax = Hapax(pool, tenant=lambda request: request.state.user_id)
    hapax.install(app)

    @app.post("/orders")
    async def create(order: Order, tx: Annotated[AsyncTx, Depends(hapax.transaction)]): ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError

from .core.asgi import SCOPE_KEY
from .core.flow import Flow
from .core.operation import Operation
from .core.phased_flow import PhasedFlow
from .core.phases import AsyncPhases, Phases
from .core.problem import Problem
from .core.stored import Disposition
from .core.tx import AsyncTx, Tx
from .starlette import Hapax as StarletteHapax

__all__ = ["AsyncPhases", "AsyncTx", "Disposition", "Hapax", "Phases", "Problem", "Tx"]


class Hapax(StarletteHapax):
    """The idempotent operations of a FastAPI application.

    :class:`hapax.core.app.BaseHapax` describes the arguments. Call :meth:`install` once.
    """

    def __init__(self, engine: Any, **settings: Any) -> None:
        super().__init__(engine, **settings)
        self.transaction = self.transaction_with()
        """Dependency: the transaction that holds the key of the request.

        It is an :class:`AsyncTx`, or a :class:`Tx` if the engine is synchronous. A request that
        FastAPI refuses because it is not valid releases its key, although its status is 422: the
        handler has not run.
        """
        self.phases = self.phases_with()
        """Dependency: the phases of a request whose handler calls another system.

        They are :class:`AsyncPhases`, or :class:`Phases` if the engine is synchronous. A key is
        always required.
        """

    def transaction_with(self, **settings: Any) -> Callable[[Request], AsyncIterator[Any]]:
        """Return a dependency like :attr:`transaction`, with other settings.

        Args:
            settings: settings of this operation; see :class:`hapax.core.operation.Operation`.
        """
        return self._dependency(self._with(settings), Flow)

    def phases_with(self, **settings: Any) -> Callable[[Request], AsyncIterator[Any]]:
        """Return a dependency like :attr:`phases`, with other settings.

        Args:
            settings: settings of this operation; see :class:`hapax.core.operation.Operation`.
        """
        return self._dependency(self._with(settings), PhasedFlow)

    def _dependency(
        self, operation: Operation, kind: type[Flow]
    ) -> Callable[[Request], AsyncIterator[Any]]:
        async def dependency(request: Request) -> AsyncIterator[Any]:
            given = await self._begin(request, operation, kind)
            try:
                yield given
            except RequestValidationError:
                request.scope[SCOPE_KEY].flow.is_released = True
                raise

        return dependency
