"""Parents as a test sends them: children with their headers, and the answers by opaque."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pocketmq.broker.broker import Broker
from pocketmq.message import properties as names
from pocketmq.remoting.answers.batch import SUCCESS_REMARK, decode_answers
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import Command, encode_command
from pocketmq.remoting.headers import (
    BatchRequestHeader,
    Header,
    PullMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from tests.broker.conftest import SUBSCRIPTION, SUSPEND, Client

PULL = int(RequestCode.PULL_MESSAGE)
SEND = int(RequestCode.SEND_MESSAGE_V2)


class Child(NamedTuple):
    """A request before it has an opaque."""

    code: int
    header: Header | None = None
    body: bytes = b""
    ext_fields: dict[str, str] | None = None
    serialize_type: int = 0
    flag: int = 0

    def frame(self, opaque: int) -> bytes:
        return encode_command(
            self.code,
            opaque,
            flag=self.flag,
            header=self.header,
            ext_fields=self.ext_fields,
            body=self.body,
            serialize_type=self.serialize_type,
        )


def send(topic: str, body: bytes = b"body", *, code: int = SEND, **fields: Any) -> Child:
    properties = names.encode(fields.pop("properties", {}))
    options = {name: fields.pop(name) for name in ("serialize_type", "flag_bits") if name in fields}
    values: dict[str, Any] = {
        "producer_group": "PG",
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000,
        "flag": 0,
        **fields,
    }
    kind = (
        SendMessageRequestHeader if code == RequestCode.SEND_MESSAGE else SendMessageRequestHeaderV2
    )
    return Child(code, kind(topic=topic, properties=properties, **values), body, **options)


def pull(topic: str, offset: int = 0, *, code: int = PULL, hold: int = 0, **fields: Any) -> Child:
    """`hold`: ms that the broker may wait."""
    options = {name: fields.pop(name) for name in ("serialize_type",) if name in fields}
    values: dict[str, Any] = {
        "consumer_group": "G",
        "queue_id": 0,
        "max_msg_nums": 32,
        "sys_flag": SUBSCRIPTION | (SUSPEND if hold else 0),
        "commit_offset": 0,
        "suspend_timeout_millis": hold,
        "sub_version": 0,
        "subscription": "*",
        **fields,
    }
    return Child(
        code, PullMessageRequestHeader(topic=topic, queue_offset=offset, **values), **options
    )


def body_of(children: Sequence[Child]) -> bytes:
    """Opaques begin at 100, to differ from those of any parent."""
    return b"".join(child.frame(100 + n) for n, child in enumerate(children))


async def parent(
    client: Client,
    children: Sequence[Child],
    *,
    code: int | None = None,
    timeout: float = 20.0,
    omit: bool | None = None,
) -> Command:
    """The answer to a parent of these children."""
    code = children[0].code if code is None else code
    header = BatchRequestHeader(dispatch_code=code, omit_not_found=omit)
    return await client.request(
        RequestCode.COMMON_BATCH_REQUEST, header, body_of(children), timeout=timeout
    )


async def batch(
    client: Client, children: Sequence[Child], *, code: int | None = None, timeout: float = 20.0
) -> list[Command]:
    """The answers in the order of the children; the parent must succeed and each be there."""
    answer = await parent(client, children, code=code, timeout=timeout)
    assert (answer.code, answer.remark) == (0, SUCCESS_REMARK)
    answers = decode_answers(answer.body)
    assert sorted(answers) == list(range(100, 100 + len(children)))
    assert all(answer.is_response for answer in answers.values())
    return [answers[100 + n] for n in range(len(children))]


def held(broker: Broker) -> int:
    """How many pulls wait in the broker."""
    return len(broker.components.pulls.holds)
