"""The shop with Django, on Django's own database or on a pool of psycopg."""

import os
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import path

from hapax.core.driver import run_blocking
from hapax.django import Hapax, Tx

from . import pools, shop

DRIVER = os.environ["DRIVER"]
url = urlsplit(pools.URL)
POOL = {"pool": {"min_size": 1, "max_size": 8, "timeout": 30}}
settings.configure(
    SECRET_KEY="-",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": url.path[1:],
            "USER": url.username,
            "HOST": url.hostname,
            "PORT": url.port,
            "ATOMIC_REQUESTS": True,
            "OPTIONS": POOL if django.VERSION >= (5, 1) else {},
        }
    },
    LOGGING_CONFIG=None,
)
django.setup()
hapax = Hapax(None if DRIVER == "django-orm" else pools.open_engine(DRIVER), **shop.SETTINGS)


async def execute_on_django(sql: str, *params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql.replace("{}", "%s"), params)


def response_of(made: shop.ShopResponse) -> HttpResponseBase:
    if made.kind == "teapot":
        raise PermissionDenied("a teapot")
    if made.kind == "stream":
        return StreamingHttpResponse(
            shop.STREAM, status=201, headers=made.headers | {"Content-Type": "text/csv"}
        )
    if made.kind == "endless":
        return StreamingHttpResponse(iter(lambda: b"x" * 65536, b""), status=201)
    if made.kind == "events":
        return StreamingHttpResponse([b"data: 1\n\n"], content_type="text/event-stream")
    headers = made.headers | {"Content-Type": made.kind}
    return HttpResponse(made.body, status=made.status, headers=headers)


@hapax.idempotent
def create(request: HttpRequest, tx: Tx) -> HttpResponseBase:
    execute = execute_on_django if DRIVER == "django-orm" else pools.execute_with(DRIVER, tx)
    return response_of(run_blocking(shop.order(tx, execute, pools.emit_with(tx), request.body)))


urlpatterns = [path("orders", create)]
app = get_wsgi_application()
