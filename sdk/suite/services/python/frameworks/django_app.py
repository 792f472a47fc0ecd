"""Django, served by waitress."""

import sys

import django
import waitress
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse, JsonResponse
from django.urls import path
from psycopg.conninfo import conninfo_to_dict

import ledger
import reads
import shop

THREADS = 16


def serve(driver, port):
    configure()
    reads.pool_sync.open()
    routes(driver)
    waitress.serve(get_wsgi_application(), host="127.0.0.1", port=port, threads=THREADS)


def configure():
    parts = conninfo_to_dict(shop.URL)
    database = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.pop("dbname"),
        "USER": parts.pop("user", ""),
        "PASSWORD": parts.pop("password", ""),
        "HOST": parts.pop("host", ""),
        "PORT": parts.pop("port", ""),
        "OPTIONS": parts,
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": True,
        # For a pooler in transaction mode.
        "DISABLE_SERVER_SIDE_CURSORS": True,
    }
    settings.configure(
        ALLOWED_HOSTS=["127.0.0.1"],
        DATABASES={"default": database},
        ROOT_URLCONF=__name__,
        SECRET_KEY="only for tests",
    )
    django.setup()


def routes(driver):
    from hapax.django import Hapax

    hapax = Hapax(driver.engine(), tenant=tenant, retention=shop.RETENTION)

    @hapax.idempotent
    def create(request, tx):
        order = shop.create_order_sync(tx, driver, request.body)
        return JsonResponse(order, status=201, headers=shop.location(order))

    def orders(request):
        if request.method == "POST":
            return create(request)
        return JsonResponse(reads.orders_sync(tenant(request)))

    def webhook(request):
        status, headers, body = ledger.receive_sync(request.headers, request.body)
        return HttpResponse(body, status=status, headers=headers)

    urls = [path("orders", orders), path("webhooks", webhook)]
    sys.modules[__name__].urlpatterns = urls


def tenant(request):
    return shop.tenant_of(request.headers.get("authorization"))
