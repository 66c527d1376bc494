from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from pocketmq.client.credentials import Credentials
from pocketmq.client.errors import InvalidName, SendError
from pocketmq.client.producer.producer import Producer
from pocketmq.message.message import Message
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers.client import GetConsumerListByGroupRequestHeader
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from pocketmq.remoting.serving.request import Request, Response
from tests.client.fake_cluster import FakeCluster

CREDENTIALS = Credentials("ak", "sk")


def by_the_book(fields: dict[str, str], body: bytes, secret: str) -> str:
    """The values in the order of their names, then the body (spec of AclUtils)."""
    text = "".join(value for name, value in sorted(fields.items()) if name != "Signature")
    digest = hmac.new(secret.encode(), text.encode() + body, hashlib.sha1).digest()
    return base64.b64encode(digest).decode()


def test_a_signature() -> None:
    header = GetConsumerListByGroupRequestHeader(consumer_group="g消")
    added = CREDENTIALS.sign(header, {"extra": "1"}, memoryview(b"body"))
    assert added == {"AccessKey": "ak", "extra": "1", "Signature": added["Signature"]}
    signed = header.to_ext() | added
    assert added["Signature"] == by_the_book(signed, b"body", "sk")
    # By AclUtils.calSignature of release 5.3.3, for "ak1x".
    assert by_the_book({"AccessKey": "ak", "a": "1"}, b"x", "sk") == "ddvnmcWd3TRbIWIaFz+urFRX3zU="


def test_a_security_token_is_signed() -> None:
    added = Credentials("ak", "sk", "token").sign(None, None, b"")
    assert added["SecurityToken"] == "token"
    assert added["Signature"] == by_the_book(added, b"", "sk")


def test_the_secret_is_not_shown() -> None:
    assert "sk" not in repr(CREDENTIALS)
    # Rich, whose tracebacks show local variables, asks this first.
    assert "sk" not in str(list(CREDENTIALS.__rich_repr__()))
    with pytest.raises(InvalidName):
        Credentials("ak", "")


async def test_every_request_is_signed(cluster: FakeCluster) -> None:
    broker = cluster["a"]
    cluster.put("T", "a")
    seen: list[tuple[int, dict[str, str], bytes]] = []
    dispatch = broker.dispatcher.dispatch

    def look(request: Request[SendMessageRequestHeaderV2]) -> Response | None:
        seen.append((request.code, request.ext_fields, bytes(request.body)))
        return dispatch(request)  # type: ignore[return-value]

    broker.dispatcher.dispatch = look  # type: ignore[method-assign]
    await broker.stop()
    await broker.start()
    async with Producer("PG", namesrv=cluster.namesrv, credentials=CREDENTIALS) as p:
        await p.send(Message("T", b"x" * 10_000, properties={"a": "ä"}))
        await p.send_batch([Message("T", b"x"), Message("T", b"y")])
        await p.send_oneway(Message("T", b"x"))
    assert {RequestCode.SEND_MESSAGE_V2, RequestCode.HEART_BEAT} <= {code for code, _, _ in seen}
    for _, fields, body in seen:
        assert fields["AccessKey"] == "ak"
        assert fields["Signature"] == by_the_book(fields, body, "sk")


async def test_a_refusal_is_an_error_of_its_own_code(cluster: FakeCluster) -> None:
    cluster.put("T", "a")
    cluster["a"].mode = ResponseCode.NO_PERMISSION
    async with Producer("PG", namesrv=cluster.namesrv, retries=0) as p:
        with pytest.raises(SendError) as caught:
            await p.send(Message("T", b"x"))
    assert caught.value.code == ResponseCode.NO_PERMISSION


async def test_a_client_without_credentials_is_told_what_it_lacks(cluster: FakeCluster) -> None:
    cluster.put("T")
    refused = Response(ResponseCode.NO_PERMISSION, "username cannot be null.")
    for broker in cluster.brokers.values():
        broker.dispatcher.wrap(RequestCode.SEND_MESSAGE_V2, lambda _: lambda _: refused)
    async with Producer("PG", namesrv=cluster.namesrv) as p:
        with pytest.raises(SendError, match="no credentials: pass credentials="):
            await p.send(Message("T", b"x"))
