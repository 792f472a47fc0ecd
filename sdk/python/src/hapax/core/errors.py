"""Errors that are raised to the programmer, and never sent to a client."""

from __future__ import annotations

from .sql import CONTRACT_VERSION


class ContractError(RuntimeError):
    """The database has no SQL contract, or an older version of it than the package needs."""

    def __init__(self, version: object) -> None:
        found = f"version {version}" if version else "version 1, or no version,"
        super().__init__(
            f"the database has {found} of the SQL contract of Hapax, and this package needs "
            f"version {CONTRACT_VERSION}: apply the migrations of Hapax up to "
            "0015_sql_contract_2.sql"
        )


class EngineError(TypeError):
    """What was passed is not an engine or a connection that the package can use."""


class TenantError(RuntimeError):
    """The request has a credential, and nothing says which tenant its key belongs to."""

    def __init__(self) -> None:
        super().__init__(
            "the request has a credential, but Hapax does not know whose it is, and keys of "
            "different principals must not meet: pass tenant= to Hapax, as a function of the "
            'request that returns the id of its principal, or as one text such as "shop" if the '
            "service has a single tenant"
        )
