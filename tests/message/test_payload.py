"""Bodies as JSON: what is sent as an object arrives as one, and what does not fit says why."""

from __future__ import annotations

import contextlib
import dataclasses
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.message.message import Message
from pocketmq.message.payload import PayloadError, decode_payload, encode_payload


class Order(msgspec.Struct):
    id: int
    note: str = ""


class StrictOrder(msgspec.Struct, forbid_unknown_fields=True):
    id: int


@dataclasses.dataclass
class Customer:
    name: str
    since: datetime


class Item(pydantic.BaseModel):
    sku: str
    count: int


class Basket(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    items: list[Item]


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (Order(1, "é"), Order),
        (Customer("Ann", datetime(2026, 1, 2, tzinfo=UTC)), Customer),
        (Basket(items=[Item(sku="a", count=2)]), Basket),
        ([Order(1), Order(2)], list[Order]),
        ({"a": [1, None]}, dict[str, list[int | None]]),
        ("text", str),
        (None, None),
    ],
)
def test_what_is_encoded_is_decoded(payload: Any, kind: Any) -> None:
    message = Message.of("orders", payload, tags="paid", keys=["1"])
    assert (message.topic, message.tags, message.keys) == ("orders", "paid", ["1"])
    assert decode_payload(message.body, kind) == payload


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON)
def test_any_json_value(value: Any) -> None:
    assert decode_payload(encode_payload(value)) == value


@given(st.binary(), st.sampled_from([Order, StrictOrder, Customer, Basket, dict, int, Any]))
def test_any_body_decodes_or_is_a_payload_error(body: bytes, kind: Any) -> None:
    with contextlib.suppress(PayloadError):
        decode_payload(body, kind)


@pytest.mark.parametrize(
    ("body", "kind", "named"),
    [
        (b"{}", Order, "required field `id`"),
        (b'{"id": "x"}', Order, "$.id"),
        (b'{"id": 1, "extra": 2}', StrictOrder, "unknown field `extra`"),
        (b'{"items": [{"sku": "a"}]}', Basket, "items.0.count: Field required"),
        (b'{"items": [], "extra": 1}', Basket, "extra: Extra inputs are not permitted"),
        (b'{"items": [{"sku": 1, "count": "x"}]}', Basket, "items.0.sku"),
        (b"no JSON", Order, "malformed"),
        (b"", Order, "truncated"),
        (b"no JSON", Basket, "Invalid JSON"),
    ],
)
def test_errors_name_the_field_and_show_nothing_of_the_body(
    body: bytes, kind: Any, named: str
) -> None:
    with pytest.raises(PayloadError) as raised:
        decode_payload(body, kind)
    assert named in str(raised.value)
    assert f"the body of {len(body)} bytes" in str(raised.value)
    assert not body or body.decode() not in str(raised.value)


def test_errors_show_no_values() -> None:
    kind: Any = dict[str, Literal["paid", "refunded"]]
    with pytest.raises(PayloadError) as raised:
        decode_payload(b'{"card": "4111 - at `1111"}', kind)
    assert "4111" not in str(raised.value)
    assert "Invalid enum value - at `$[...]`" in str(raised.value)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_json_lacks(number: float) -> None:
    for payload in (number, {"a": [None, number]}, Price(number)):
        with pytest.raises(TypeError, match="NaN or infinite"):
            Message.of("orders", payload)
    assert Message.of("orders", {"a": None, "b": 1.5}).body == b'{"a":null,"b":1.5}'


class Price(msgspec.Struct):
    amount: float


@pytest.mark.parametrize("kind", [3, "Order", [1], Order(1), {"a": int}])
def test_what_is_not_a_type(kind: Any) -> None:
    with pytest.raises(TypeError, match="not a type that can be decoded"):
        decode_payload(b"{}", kind)


def test_what_json_has_no_form_for() -> None:
    with pytest.raises(TypeError, match="object cannot be sent as JSON"):
        Message.of("orders", object())
