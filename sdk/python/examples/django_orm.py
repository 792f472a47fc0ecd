"""Django with its ORM, in one file: an idempotent order.

Run it with ``DATABASE_URL=postgres://... python django_orm.py 8000``.
"""

import json
import os
import sys
import uuid
from urllib.parse import urlsplit
from wsgiref.simple_server import make_server

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db import connection, models
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from hapax import Problem, codes
from hapax.django import Hapax, Tx

url = urlsplit(os.environ["DATABASE_URL"])
settings.configure(
    SECRET_KEY=os.urandom(16).hex(),
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": url.path[1:],
            "USER": url.username,
            "PASSWORD": url.password or "",
            "HOST": url.hostname,
            "PORT": url.port,
        }
    },
)
django.setup()
hapax = Hapax(tenant=lambda request: request.headers.get("x-user", "demo"))


class Order(models.Model):
    """An order."""

    id = models.TextField(primary_key=True)
    item = models.TextField()
    amount = models.BigIntegerField()

    class Meta:
        app_label = "example"
        db_table = "example_order"


@hapax.idempotent
def create(request: HttpRequest, tx: Tx) -> HttpResponse:
    sent = json.loads(request.body)
    order = Order.objects.create(id=f"ord_{uuid.uuid4()}", item=sent["item"], amount=sent["amount"])
    if order.item == "sold out":
        raise Problem(codes.CONFLICT, "the item is sold out")
    tx.emit("order.created", sent, aggregate=("order", order.id))
    return JsonResponse({"id": order.id, **sent}, status=201)


urlpatterns = [path("orders", create)]

if __name__ == "__main__":
    if Order._meta.db_table not in connection.introspection.table_names():
        with connection.schema_editor() as editor:
            editor.create_model(Order)
    make_server("127.0.0.1", int(sys.argv[1]), get_wsgi_application()).serve_forever()
