"""A transactional outbox: a message is sent if, and only if, its database transaction committed.

    pip install pocketmq sqlalchemy
    export NAMESRV_ADDR=127.0.0.1:9876 DATABASE_URL=sqlite:///orders.db
    python outbox.py place o-1 o-2     # what your application does
    python outbox.py relay             # a process of its own, until there is nothing left to send

The order and its message are rows of one transaction. The relay sends the rows in their order and
deletes those that are stored. If it is killed in between, it sends them again: let consumers
recognise a message by its key. On PostgreSQL several relays may run, and the lock keeps a second
one waiting, so that messages stay in order.
"""

import json
import os
import sys

from sqlalchemy import create_engine, delete, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from pocketmq import Message, sync

engine = create_engine(os.environ.get("DATABASE_URL", "sqlite:///orders.db"))


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(primary_key=True)


class Outgoing(Base):
    __tablename__ = "outbox"
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    key: Mapped[str]
    body: Mapped[str]


def place(order_id: str) -> None:
    """An order that exists already raises IntegrityError, and has no second message."""
    with Session(engine) as session, session.begin():
        session.add(Order(id=order_id))
        body = json.dumps({"number": order_id, "item": "coffee", "amount": 2.5})
        session.add(Outgoing(key=order_id, body=body))


def relay(producer: sync.Producer) -> int:
    """Send up to 100 messages of the outbox; return how many."""
    oldest = select(Outgoing).order_by(Outgoing.number).limit(100).with_for_update()
    with Session(engine) as session, session.begin():
        rows = session.scalars(oldest).all()
        for row in rows:
            producer.send(Message("orders", row.body.encode(), keys=[row.key]), key=row.key)
        session.execute(delete(Outgoing).where(Outgoing.number.in_([row.number for row in rows])))
    return len(rows)


def main(command: str, *order_ids: str) -> None:
    Base.metadata.create_all(engine)
    if command == "place":
        for order_id in order_ids:
            place(order_id)
    else:
        # While the broker is away, a send waits for it.
        with sync.Producer("shop", timeout=60.0) as producer:
            while count := relay(producer):
                print("sent", count)


if __name__ == "__main__":
    main(*sys.argv[1:])
