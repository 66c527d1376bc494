"""Keys found by numpy in a stretch of commit log are those that the properties' decoder finds."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pocketmq.message import properties as names
from pocketmq.message.record_layout import MAGIC_V1, MAGIC_V2, encode_into, record_size
from pocketmq.message.sysflag import BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_ROLLBACK
from pocketmq.store.encoding.index_keys import keys_of
from pocketmq.store.encoding.key_hash import key_hash

HOSTS = {False: bytes(8), True: bytes(20)}

#: topic, properties, body, sysFlag
Message = tuple[str, bytes, bytes, int]


def log_of(messages: list[Message], base: int) -> tuple[memoryview, list[int]]:
    """A stretch of commit log, and where its records begin."""
    log, places = bytearray(), []
    for number, (topic, properties, body, sys_flag) in enumerate(messages):
        name = topic.encode()
        version = 2 if len(name) > 127 else 1
        size = record_size(len(body), len(name), len(properties), sys_flag, version)
        at = len(log)
        places.append(at)
        log += bytes(size)
        encode_into(
            log, at, size, MAGIC_V2 if version == 2 else MAGIC_V1, 0, 1, 0, number, base + at,
            sys_flag, 1, HOSTS[bool(sys_flag & BORN_HOST_V6)], 5000 + number,
            HOSTS[bool(sys_flag & STORE_HOST_V6)], 0, 0, body, name, properties,
        )  # fmt: skip
    return memoryview(log), places


def expected(messages: list[Message], places: list[int], base: int) -> list[tuple[int, int, int]]:
    found = []
    for number, ((topic, text, _, sys_flag), at) in enumerate(zip(messages, places, strict=True)):
        properties = names.decode(text)
        keys = [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
        if properties.get("TAGS"):
            keys.append(f"T#{properties['TAGS']}")
        if sys_flag & TRANSACTION_ROLLBACK != TRANSACTION_ROLLBACK:
            found += [(key_hash(topic, key), base + at, 5000 + number) for key in keys if key]
    return found


def check(messages: list[Message], base: int = 7_000) -> None:
    log, places = log_of(messages, base)
    keys = keys_of(log, base, places)
    rows = zip(keys.hash.tolist(), keys.physical.tolist(), keys.timestamp.tolist(), strict=True)
    assert list(rows) == expected(messages, places, base)


names_of_properties = st.sampled_from(
    ["UNIQ_KEY", "KEYS", "XUNIQ_KEY", "MYKEYS", "KEY", "UNIQ_KEYS", "", "TAGS", "é"]
)
values = st.text(
    st.characters(codec="utf-8", exclude_characters="\x02")
    | st.sampled_from(" \x01KEYS\x00é\U0001f600"),
    max_size=12,
)
entries = st.lists(
    st.tuples(names_of_properties, st.sampled_from(["\x01", ""]), values, st.sampled_from("\x02")),
    max_size=6,
).map(lambda parts: "".join(map("".join, parts)).encode("utf-8", "surrogatepass"))
texts = entries | entries.map(lambda text: text.removesuffix(b"\x02")) | st.binary(max_size=40)
messages = st.tuples(
    st.sampled_from(["T", "Topic", "UNIQ_KEY", "%RETRY%group", "long" * 50, "A" * 127]),
    texts,
    st.binary(max_size=30),
    st.sampled_from([0, 1, BORN_HOST_V6, STORE_HOST_V6, BORN_HOST_V6 | STORE_HOST_V6, 4, 8, 12]),
)


@given(st.lists(messages, max_size=8))
@example([("T", b"UNIQ_KEY\x01a\x02KEYS\x01 k1  k2 \x02", b"KEYS\x01no\x02", 0)])
@example([("T", b"KEYS\x01late\x02UNIQ_KEY\x01first\x02", b"", 0)])
@example([("T", b"KEYS\x01old\x02KEYS\x01\x02UNIQ_KEY\x01a\x02UNIQ_KEY\x01b\x02", b"", 0)])
@example([("T", b"a\x01KEYS\x01x\x02", b"", 0), ("T", b"KEYS\x01x\x01y\x02", b"", 0)])
@example([("T", b"TAGS\x01a || b\x02KEYS\x01k\x02", b"", 0), ("T", b"TAGS\x01\x02", b"", 0)])
@example([("T", "TAGS\x01é\x02".encode(), b"", 0)])
@example([("T" * 127, b"\x01" * 300, b"", 0)])
def test_keys_are_those_of_the_decoded_properties(some: list[Message]) -> None:
    check(some)


@pytest.mark.parametrize("digits", [1, 5], ids=["lengths differ", "lengths are equal"])
def test_long_stretches(digits: int) -> None:
    text = "TAGS\x01tag\x02UNIQ_KEY\x01{:032X}\x02KEYS\x01order{:0{}}\x02"
    check([(f"Topic{n % 3}", text.format(n, n, digits).encode(), b"b" * n, 0) for n in range(2000)])


def test_messages_of_one_producer() -> None:
    """They are alike, so they are not looked through one by one."""
    text = "UNIQ_KEY\x01{:032X}\x02TAGS\x01a b\x02WAIT\x01true\x02KEYS\x01all order{:04}\x02"
    check([("Topic", text.format(n, n).encode(), b"b" * n, 0) for n in range(100)])
    check([("Topic", b"WAIT\x01true\x02", b"", 0)] * 100)


alike = st.text(st.sampled_from("azAZ09{}|~") | st.sampled_from("azAZ09 \x01\x02é"), max_size=6)


@given(
    st.sampled_from(["T", "Topic", "é", "long" * 50]),
    st.lists(st.tuples(st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "a"]), alike), max_size=4),
    st.lists(st.tuples(st.integers(0, 39), st.integers(0, 60), st.sampled_from("x0 \x01\x02"))),
    st.sampled_from([("T", 0), ("t", 0), ("T", 4), ("T", BORN_HOST_V6), ("T" * 200, 0)]),
)
def test_keys_of_messages_that_are_nearly_alike(
    topic: str,
    properties: list[tuple[str, str]],
    changes: list[tuple[int, int, str]],
    stranger: tuple[str, int],
) -> None:
    """Of one form, except that any byte of the properties may be another one here and there, and
    that there may be one message of another topic among them."""
    some = []
    for number in range(40):
        text = "".join(f"{name}\x01{value}{number:02}\x02" for name, value in properties)
        for changed, at, character in changes:
            if changed == number:
                text = text[:at] + character + text[at + 1 :]
        some.append((topic, text.encode(), b"body", 0))
    check(some)
    some[20] = (stranger[0], some[20][1], b"body", stranger[1])
    check(some)


def test_the_least_hash_counts_as_0() -> None:
    # "T#ajvakuzm".hashCode() is -2^31, of which Java's Math.abs makes no positive number.
    assert key_hash("T", "ajvakuzm") == 0
    check([("T", b"KEYS\x01ajvakuzm\x02", b"", 0)])
    check([("T", b"KEYS\x01ajvakuz%c\x02" % n, b"", 0) for n in b"abcdefghijklmnopqrstuvwxyz"])


def test_lengths_that_do_not_add_up_have_no_keys() -> None:
    good = ("T", b"UNIQ_KEY\x01a\x02", b"body", 0)
    log, places = log_of([good, good, good], 0)
    damaged = bytearray(log)
    at = places[1] + 84
    for length in (2**31 - 1, -(2**31), 4096):
        damaged[at : at + 4] = length.to_bytes(4, "big", signed=True)
        keys = keys_of(memoryview(damaged), 0, places)
        assert keys.physical.tolist() == [places[0], places[2]]
