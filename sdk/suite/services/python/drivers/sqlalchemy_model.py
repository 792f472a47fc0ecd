"""The table of orders for SQLAlchemy's ORM."""

from sqlalchemy import BigInteger
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """The base of the models."""


class ShopOrder(Base):
    """An order."""

    __tablename__ = "shop_order"

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str]
    item: Mapped[str]
    amount: Mapped[int] = mapped_column(BigInteger)
