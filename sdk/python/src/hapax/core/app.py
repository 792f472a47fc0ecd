"""What the integrations of all frameworks share: the engine, the settings and the tenant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, TypeVar

from hapax.drivers import driver_of

from .driver import Driver
from .errors import TenantError
from .operation import Operation

R = TypeVar("R")
ANONYMOUS = "anonymous"
_CREDENTIALS = frozenset({"authorization", "cookie", "x-api-key"})


class BaseHapax(Generic[R]):
    """The idempotent operations of an application.

    Args:
        engine: an engine or a pool; see :data:`hapax.drivers.ENGINES`.
        tenant: the stable id of the principal that a request is for: a function of the request, or
            one text for a service that has a single tenant. Keys of different tenants are
            separate. Default: the user that the framework has authenticated, and ``anonymous`` for
            a request without any credential.
        settings: defaults of all operations; see :class:`hapax.core.operation.Operation`.
    """

    def __init__(
        self, engine: Any, *, tenant: str | Callable[[R], str] | None = None, **settings: Any
    ) -> None:
        self._driver: Driver = driver_of(engine)
        self._tenant = tenant
        self.operation = Operation(**settings)

    def _with(self, settings: dict[str, Any]) -> Operation:
        return replace(self.operation, **settings) if settings else self.operation

    def _tenant_of(self, request: R, user: str | None, headers: list[str]) -> str:
        """Return the tenant of a request.

        Raises:
            TenantError: the request has a credential, and nothing says whose it is.
        """
        if callable(self._tenant):
            tenant = self._tenant(request)
        else:
            tenant = self._tenant or user or ANONYMOUS
            if tenant == ANONYMOUS and _CREDENTIALS & set(headers):
                raise TenantError
        if not isinstance(tenant, str) or not 1 <= len(tenant.encode()) <= 255:
            raise TypeError(f"the tenant is a text of 1 to 255 bytes, not {tenant!r}")
        return tenant
