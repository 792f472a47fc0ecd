"""Orders with Django and its ORM. VARIANT chooses how a retry is recognized."""

import json
from typing import Any
from urllib.parse import urlsplit

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db import models
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from shop import DATABASE_URL, HAS_EVENT, IS_HAPAX, REDIS_URL, VARIANT

url = urlsplit(DATABASE_URL)
is_peer = VARIANT.startswith("django-idempotency-key")
peers = ["idempotency_key.middleware.IdempotencyKeyMiddleware"] if is_peer else []
is_redis = VARIANT.endswith("-redis")
storage = "CacheKeyStorage" if is_redis else "MemoryKeyStorage"
settings.configure(
    SECRET_KEY="-",
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["django.middleware.common.CommonMiddleware", *peers],
    # None: a replay has the status of the first response.
    IDEMPOTENCY_KEY={
        "CONFLICT_STATUS_CODE": None,
        "STORAGE": {"CLASS": f"idempotency_key.storage.{storage}"},
    },
    CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS_URL}}
    if is_redis
    else {},
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": url.path[1:],
            "USER": url.username,
            "PASSWORD": url.password or "",
            "HOST": url.hostname,
            "PORT": url.port,
            # Each thread keeps its connection.
            "CONN_MAX_AGE": None,
        }
    },
)
django.setup()


class Order(models.Model):
    """An order."""

    id = models.AutoField(primary_key=True)
    item = models.TextField()
    amount = models.IntegerField()

    class Meta:
        app_label = "bench"
        db_table = "orders"


def insert(request: HttpRequest) -> dict[str, Any]:
    sent = json.loads(request.body)
    order = Order.objects.create(item=sent["item"], amount=sent["amount"])
    return {"id": order.id, "item": order.item, "amount": order.amount}


def create_bare(request: HttpRequest) -> HttpResponse:
    return JsonResponse(insert(request), status=201)


if IS_HAPAX:
    from hapax.django import Hapax, Tx

    hapax = Hapax(tenant=lambda _: "bench")

    @hapax.idempotent
    def create(request: HttpRequest, tx: Tx) -> HttpResponse:
        created = insert(request)
        if HAS_EVENT:
            tx.emit("order.created", created, aggregate=("order", str(created["id"])))
        return JsonResponse(created, status=201)

    urlpatterns = [path("orders", create)]
else:
    urlpatterns = [path("orders", create_bare)]
app = get_wsgi_application()
