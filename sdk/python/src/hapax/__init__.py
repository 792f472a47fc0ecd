"""Idempotency keys, outbox and inbox in your own PostgreSQL transaction.

The integrations are in :mod:`hapax.fastapi`, :mod:`hapax.starlette`, :mod:`hapax.flask` and
:mod:`hapax.django`, requests in phases in :mod:`hapax.phased`, the retry client in
:mod:`hapax.client`, and webhooks in :mod:`hapax.inbox`.
"""

from .core import codes
from .core.codes import Code
from .core.errors import ContractError, EngineError, TenantError
from .core.event import JsonText
from .core.operation import Operation
from .core.owner import FencedError
from .core.phases import AsyncPhases, CallFailure, Phases
from .core.problem import Problem
from .core.stored import Disposition
from .core.tx import AsyncTx, Tx

__all__ = [
    "AsyncPhases",
    "AsyncTx",
    "CallFailure",
    "Code",
    "ContractError",
    "Disposition",
    "EngineError",
    "FencedError",
    "JsonText",
    "Operation",
    "Phases",
    "Problem",
    "TenantError",
    "Tx",
    "codes",
]
__version__ = "0.1.0"
