"""The demo's audit: what was acknowledged against what was pulled."""

from __future__ import annotations

from pocketmq.client.send_result import SendResult, SendStatus
from pocketmq.demo.ledger import Audit, Ledger
from pocketmq.message.message import MessageExt, MessageQueue


def sent(broker: str, offset: int, msg_id: str) -> SendResult:
    queue = MessageQueue("flights", broker, 0)
    return SendResult(SendStatus.SEND_OK, msg_id, "", queue, offset)


def pulled(broker: str, offset: int, msg_id: str, tags: str = "UA") -> MessageExt:
    properties = f"UNIQ_KEY\x01{msg_id}\x02TAGS\x01{tags}\x02".encode()
    return MessageExt(
        "flights", b"x", properties, 0, 0, offset, 0, 0, 0, b"", 0, b"", 0, 0, 0, 0, broker
    )


def test_exact_in_either_order() -> None:
    ledger = Ledger()
    ledger.acknowledge([sent("a", 0, "m0")])
    assert not ledger.settled
    ledger.pull([pulled("a", 0, "m0"), pulled("b", 0, "m1", tags="AA")])
    ledger.acknowledge([sent("b", 0, "m1")])
    assert ledger.settled
    audit = ledger.audit()
    assert audit == Audit(acknowledged=2, pulled=2, lost=0, twice=0, unacknowledged=0)
    assert audit.exact
    assert ledger.by_tag == {"UA": 1, "AA": 1}
    assert ledger.acknowledged_by_broker == {"a": 1, "b": 1}


def test_a_message_that_was_not_pulled_is_lost() -> None:
    ledger = Ledger()
    ledger.acknowledge([sent("a", 0, "m0"), sent("a", 1, "m1")])
    ledger.pull([pulled("a", 0, "m0")])
    assert not ledger.settled
    assert ledger.audit().lost == 1
    assert not ledger.audit().exact


def test_another_message_at_the_acknowledged_place_is_a_loss() -> None:
    ledger = Ledger()
    ledger.acknowledge([sent("a", 0, "m0")])
    ledger.pull([pulled("a", 0, "other")])
    assert ledger.audit().lost == 1


def test_the_same_place_twice_is_counted() -> None:
    ledger = Ledger()
    ledger.acknowledge([sent("a", 0, "m0")])
    ledger.pull([pulled("a", 0, "m0"), pulled("a", 0, "m0")])
    assert ledger.audit().twice == 1
    assert ledger.by_tag == {"UA": 1}
    assert not ledger.audit().exact


def test_stored_without_an_answer_is_no_loss() -> None:
    ledger = Ledger()
    ledger.acknowledge([sent("a", 0, "m0")])
    ledger.pull([pulled("b", 0, "m0"), pulled("a", 0, "m0")])
    assert ledger.audit() == Audit(acknowledged=1, pulled=2, lost=0, twice=0, unacknowledged=1)
    assert ledger.audit().exact
