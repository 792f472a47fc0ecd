"""Numbers by their decimal value: the digits without zeros at either end, and a power of ten.

``4200``, ``4200.0`` and ``4.2e3`` are all written as ``42e2``. The value is exact at any size. Only
digits are copied and counted: a number is never expanded, so a large exponent costs no more than
its own digits.
"""

from __future__ import annotations

_SMALL = 18


def decimal_value(token: str) -> str:
    """Write the value of a valid JSON number."""
    digits, _, exponent = token.replace("E", "e").partition("e")
    whole, _, fraction = digits.partition(".")
    sign = "-" if whole.startswith("-") else ""
    significant = (whole.lstrip("-") + fraction).lstrip("0")
    if not significant:
        return "0"
    trimmed = significant.rstrip("0")
    shift = len(significant) - len(trimmed) - len(fraction)
    power = _sum(exponent, shift)
    return f"{sign}{trimmed}" + (f"e{power}" if power != "0" else "")


def _sum(exponent: str, shift: int) -> str:
    """Add a small number to an exponent, as it was sent, of any length."""
    is_negative = exponent.startswith("-")
    digits = exponent.lstrip("+-").lstrip("0") or "0"
    # The last digits are added as an integer. A carry or a borrow goes through the others as text,
    # because the conversion of a long text to an integer takes quadratic time.
    if len(digits) <= _SMALL:
        value = int(digits)
        return str((-value if is_negative else value) + shift)
    shift = -shift if is_negative else shift
    head, tail = digits[:-_SMALL], int(digits[-_SMALL:]) + shift
    carry, tail = divmod(tail, 10**_SMALL)
    head = _step(head, carry)
    total = (head + str(tail).zfill(_SMALL)).lstrip("0")
    return ("-" if is_negative else "") + total


def _step(digits: str, by: int) -> str:
    """Add 1, 0 or -1 to a positive number."""
    if by == 0:
        return digits
    turned, to = ("9", "0") if by > 0 else ("0", "9")
    kept = digits.rstrip(turned)
    rolled = to * (len(digits) - len(kept))
    if not kept:
        return "1" + rolled
    return kept[:-1] + str(int(kept[-1]) + by) + rolled
