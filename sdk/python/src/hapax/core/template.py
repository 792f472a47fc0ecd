"""The route template of an operation, written as all languages write it: ``/orders/{id}``."""

from __future__ import annotations

import re

_STARLETTE = re.compile(r"\{([^:{}]+)(?::([^{}]*))?\}")
_ANGLE = re.compile(r"<(?:[^:<>]*:)?([^<>]+)>")


def of_braces(route: str, path: str) -> str:
    """Return the template of ``route``, below the prefix under which ``path`` has reached it.

    Args:
        route: a template such as ``/orders/{id:int}``, which may lack the prefix of a mount.
        path: the path of the request.
    """
    pattern, template, at = "", "", 0
    for parameter in _STARLETTE.finditer(route):
        before = route[at : parameter.start()]
        pattern += re.escape(before) + (".+" if parameter[2] == "path" else "[^/]+")
        template += f"{before}{{{parameter[1]}}}"
        at = parameter.end()
    pattern, template = pattern + re.escape(route[at:]), template + route[at:]
    if re.fullmatch(pattern, path):
        return template
    for at in (place.start() for place in re.finditer("/", path)):
        if re.fullmatch(pattern, path[at:]):
            return path[:at] + template
    return template


def of_angles(route: str) -> str:
    """Convert a template of Flask or Django, such as ``/orders/<int:id>``."""
    return "/" + _ANGLE.sub(r"{\1}", route).lstrip("/")
