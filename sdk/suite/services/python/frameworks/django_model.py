"""The table of orders for Django's ORM."""

from django.db import models


class ShopOrder(models.Model):
    """An order."""

    id = models.TextField(primary_key=True)
    tenant = models.TextField()
    item = models.TextField()
    amount = models.BigIntegerField()

    class Meta:
        """The table is not one of Django's."""

        app_label = "shop"
        db_table = "shop_order"
        managed = False
