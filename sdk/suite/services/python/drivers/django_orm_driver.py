"""Django's ORM. Its engine is the database of the project."""

IS_ASYNC = False


def engine():
    return None


def insert(tx, row):
    from frameworks.django_model import ShopOrder

    ShopOrder.objects.create(**row)
