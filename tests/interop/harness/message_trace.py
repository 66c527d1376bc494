"""The message trace that clients leave, as it is stored."""

from __future__ import annotations

from . import wire
from .official import JavaPeer

TOPIC = "RMQ_SYS_TRACE_TOPIC"

# Fields of one record are divided by \1, records by \2; the kind of record comes first.
FIELD, RECORD = "\1", "\2"


def await_kinds(java: JavaPeer, namesrv: str, ids: list[str], wanted: set[str]) -> None:
    """Wait until the trace has exactly these kinds of records of each message of a unique id."""

    def routed() -> bool:
        return wire.call(namesrv, wire.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}).code == 0

    def found() -> dict[str, set[str]]:
        kinds: dict[str, set[str]] = {name: set() for name in ids}
        answer = java("pull", namesrv=namesrv, group="reader", topics=[TOPIC])
        for message in answer["messages"]:
            for record in message["body"].split(RECORD):
                fields = record.split(FIELD)
                for name in kinds.keys() & set(fields):
                    kinds[name].add(fields[0])
        return kinds

    wire.until(routed, "the topic of the trace")  # The first record makes it.
    wire.until(lambda: found() == dict.fromkeys(ids, wanted), "the whole trace", 30, 0.3)
