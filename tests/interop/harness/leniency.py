"""Odd requests, sent raw to servers of both makes: what one serves, the other is to serve as well.

`cases` makes odd requests of the good ones: a field absent, empty or `abc`; the keys of a body in
other spellings; JSON as only fastjson reads it; headers likewise. `KEPT` in
scripts/write_compatibility_page.py has the differences that are meant. Since 5.4 the official
servers read JSON with fastjson2, which takes less; ours take what they took.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from pocketmq.remoting.codes import RequestCode
from scripts.write_compatibility_page import KEPT, Kept

from .cluster import BROKER_NAME, Cluster
from .good_requests import GOOD, HEARTBEAT, SEND, create_group, create_topic, register
from .official import VERSION
from .raw_requests import PATIENCE, Ask, Body, Case, Connection, Head, plain_head
from .wire import Answer


class World:
    """One make's servers with a topic, a message in it, and a group that is online."""

    TOPIC: Final = "Leniency"
    GROUP: Final = "leniency_group"
    PRODUCERS: Final = "leniency_producers"
    CLIENT: Final = "leniency@client"
    FAKE: Final = "leniency_broker"

    def __init__(self, cluster: Cluster) -> None:
        self._connections = {
            "broker": Connection(cluster.broker.address),
            "namesrv": Connection(cluster.namesrv.address),
        }
        # What is registered lasts as long as its connection, which odd requests may close.
        self._online = Connection(cluster.broker.address)
        self.registered = Connection(cluster.namesrv.address)
        self.names = {
            "topic": self.TOPIC,
            "group": self.GROUP,
            "producers": self.PRODUCERS,
            "client": self.CLIENT,
            "broker": BROKER_NAME,
            "fake": self.FAKE,
            "address": cluster.broker.address,
            "port": "9",
            "now": str(int(time.time() * 1000)),
        }
        #: The remark of the last answer to a case.
        self.remark: str | None = None
        self._prepare()

    def _prepare(self) -> None:
        for ask in (
            create_topic("<topic>"),
            create_group("<group>"),
            Ask("namesrv", RequestCode.PUT_KV_CONFIG,
                {"namespace": "leniency", "key": "k", "value": "v"}),
        ):  # fmt: skip
            self._must(ask)
        for _ in range(2):
            sent = self._must(SEND)
        self.names["msgid"] = sent.ext_fields["msgId"]
        self.names["offset"] = str(int(sent.ext_fields["msgId"][16:], 16))
        registered = self.registered.ask(self.filled(register("<fake>", "leniency_topic"), {}))
        assert isinstance(registered, Answer), registered
        assert registered.code == 0, registered
        online = self._online.ask(self.filled(HEARTBEAT, {}))
        assert isinstance(online, Answer), online
        assert online.code == 0, online
        self._must(
            Ask("broker", RequestCode.UPDATE_CONSUMER_OFFSET,
                {"consumerGroup": "<group>", "topic": "<topic>", "queueId": "0",
                 "commitOffset": "0"})
        )  # fmt: skip

    def _must(self, ask: Ask) -> Answer:
        answer = self.send(self.filled(ask, {}))
        assert isinstance(answer, Answer), (ask, answer)
        assert answer.code == 0, (ask, answer)
        return answer

    def filled(self, ask: Ask, more: Mapping[str, str]) -> Ask:
        """The request with the names of this world in it."""
        names = {**self.names, **more}
        return replace(
            ask,
            fields={key: _fill(value, names) for key, value in ask.fields.items()},
            body=_fill(ask.body, names),
        )

    def send(self, ask: Ask, head: Head = plain_head, patience: float = PATIENCE) -> Answer | str:
        """Sends a request as it is."""
        return self._connections[ask.server].ask(ask, head, patience)

    def run(self, case: Case, number: int) -> dict[str, object]:
        """Sends a case: what is compared, by name."""
        more = {"fresh": f"lenient_{number}", "port": str(1000 + number % 60_000)}
        for ask in case.good.before:
            self.send(self.filled(ask, more))
        answer = self.send(self.filled(case.ask, more), case.head, case.good.patience)
        self.remark = None if isinstance(answer, str) else answer.remark
        if isinstance(answer, str):
            return {"code": answer}
        found: dict[str, object] = {"code": answer.code}
        if case.good.answer is not None:
            found["answer"] = case.good.answer(answer)
        if case.good.effect is not None:
            after = self.send(self.filled(case.good.effect.ask, more))
            assert isinstance(after, Answer), case
            found["effect"] = case.good.effect.of(after)
        return found

    def close(self) -> None:
        """Closes its connections."""
        for connection in (*self._connections.values(), self._online, self.registered):
            connection.close()


_PLACE: Final = re.compile("<([a-z]+)>")


def _fill(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _PLACE.sub(lambda match: names.get(match[1], match[0]), value)
    if isinstance(value, bytes):
        return _fill(value.decode("latin-1"), names).encode("latin-1")
    if isinstance(value, dict):
        return {_fill(k, names): _fill(v, names) for k, v in value.items()}
    if isinstance(value, list):
        return [_fill(item, names) for item in value]
    return value


def capitalised(name: str) -> str:
    """`ClientID`."""
    return name[:1].upper() + name[1:]


def snake_case(name: str) -> str:
    """`client_id`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def kebab_case(name: str) -> str:
    """`client-id`."""
    return snake_case(name).replace("_", "-")


def respelt(value: Any, spell: Callable[[str], str]) -> Any:
    """`value` with its fields' names in another spelling; the keys of maps stay."""
    if isinstance(value, dict):
        return {
            key if key.startswith("<") else spell(key): respelt(item, spell)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [respelt(item, spell) for item in value]
    return value


ORDINALS: Final = {
    "CONSUME_ACTIVELY": 0,
    "CONSUME_PASSIVELY": 1,
    "BROADCASTING": 0,
    "CLUSTERING": 1,
    "CONSUME_FROM_FIRST_OFFSET": 4,
    "SINGLE_TAG": 0,
    "EXPONENTIAL": 0,
    "CUSTOMIZED": 1,
}


def _ordinals(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ordinals(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_ordinals(item) for item in value]
    return ORDINALS.get(value, value) if isinstance(value, str) else value


def _with_numbers(value: Any, text: Callable[[int], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _with_numbers(item, text) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_numbers(item, text) for item in value]
    return text(value) if type(value) is int else value


def _odd_json(text: str) -> Iterator[tuple[str, str]]:
    """Texts that are no JSON, but mean the same to fastjson."""
    yield "single quotes", text.replace('"', "'")
    yield "bare keys", re.sub(r'"([A-Za-z]+)":', r"\1:", text)
    yield "trailing comma", re.sub(r"(?<=[^\[{])([}\]])", r",\1", text)
    yield "Set[]", text.replace("[", "Set[")
    yield "BOM", "\ufeff" + text
    yield "newline at the end", text + "\n"
    yield "comments", "/* a */" + text.replace(",", ", // b\n")
    yield "tabs and newlines", text.replace(",", ",\n\t")


def _odd_bodies(body: dict[str, Any]) -> Iterator[tuple[str, Body]]:
    for spell in (capitalised, snake_case, kebab_case, str.upper):
        yield spell.__name__, respelt(body, spell)
    yield "capitalised within", {key: respelt(item, capitalised) for key, item in body.items()}
    yield (
        "unknown keys within",
        {key: respelt(item, lambda name: f"un{name}") for key, item in body.items()},
    )
    yield "ordinals", _ordinals(body)
    yield '"00"', _with_numbers(body, lambda number: f"00{number}")
    yield '"+0"', _with_numbers(body, lambda number: f"+{number}")
    yield '"N.0"', _with_numbers(body, lambda number: f"{number}.0")
    yield "floats", _with_numbers(body, float)
    yield "empty texts for numbers", _with_numbers(body, lambda number: "")
    yield "abc for numbers", _with_numbers(body, lambda number: "abc")
    yield "null for numbers", _with_numbers(body, lambda number: None)
    for name, text in _odd_json(json.dumps(body)):
        yield name, text.encode()
    yield "absent", None
    yield "{}", b"{}"
    yield "[]", b"[]"
    yield "null", b"null"
    yield "a text", b'"abc"'
    yield "no JSON", b"abc"
    yield "cut short", json.dumps(body).encode()[:-1]
    yield "more after it", json.dumps(body).encode() + b"{}"
    yield "an unknown key only", b'{"nothingKnown":1}'
    for name in body:
        rest = {key: value for key, value in body.items() if key != name}
        yield f"without {name}", rest
        yield f"{name} null", {**body, name: None}
        yield f"{name} abc", {**body, name: "abc"}


def _odd_heads() -> Iterator[tuple[str, Head]]:
    for name in dict(_odd_json("{}")):
        yield name, partial(_odd_text, name)
    yield "NUL at the end", lambda header: plain_head(header) + b"\n\0"
    for spell in (capitalised, snake_case, str.upper):
        yield spell.__name__, partial(_respelt_head, spell)
    yield "texts for numbers", partial(_changed_head, {"version": "00479", "flag": "+0"})
    yield (
        "a text for the code",
        lambda header: _changed_head({"code": f"+{header['code']}"}, header),
    )
    yield "language as number", partial(_changed_head, {"language": 2})
    yield "language unknown", partial(_changed_head, {"language": "XYZ"})
    yield "bare values", _bare_head
    yield "extFields null", partial(_changed_head, {"extFields": None})
    yield (
        "no extFields",
        lambda header: plain_head(
            {key: value for key, value in header.items() if key != "extFields"}
        ),
    )


def _odd_text(name: str, header: dict[str, Any]) -> bytes:
    return dict(_odd_json(json.dumps(header)))[name].encode()


def _respelt_head(spell: Callable[[str], str], header: dict[str, Any]) -> bytes:
    return plain_head({spell(key): value for key, value in header.items()})


def _changed_head(changes: dict[str, Any], header: dict[str, Any]) -> bytes:
    return plain_head({**header, **changes})


def _bare_head(header: dict[str, Any]) -> bytes:
    fields = {key: _bare(value) for key, value in header["extFields"].items()}
    return plain_head({**header, "extFields": fields})


def _bare(text: str) -> Any:
    return int(text) if text.isdigit() else text


_ODD_NUMBERS: Final = ("00", "+1", "-1", "99999999999999999999")
# A name server closes the connection of a broker whose time is over, at a moment of its choice.
_TIMEOUTS: Final = frozenset({"heartbeatTimeoutMillis", "heartbeatTimeoutMills"})


def cases() -> Iterator[Case]:
    """Every odd request; before those of a code the good one."""
    for good in GOOD:
        ask = good.ask
        title = f"{int(ask.code)}"
        yield Case(f"{title} good", good, ask)
        for name in ask.fields:
            rest = {key: value for key, value in ask.fields.items() if key != name}
            yield Case(f"{title} without {name}", good, replace(ask, fields=rest))
            is_number = ask.fields[name].isdigit() and name not in _TIMEOUTS
            for odd in ("", "abc", *(_ODD_NUMBERS if is_number else ())):
                fields = {**ask.fields, name: odd}
                yield Case(f"{title} {name}={odd!r}", good, replace(ask, fields=fields))
        if len(ask.fields) > 1:
            yield Case(f"{title} without fields", good, replace(ask, fields={}))
        if isinstance(ask.body, dict):
            for name, body in _odd_bodies(ask.body):
                yield Case(f"{title} body {name}", good, replace(ask, body=body))
    for good in GOOD:
        if good.ask.code in _HEADS_OF:
            for name, head in _odd_heads():
                yield Case(f"{int(good.ask.code)} header {name}", good, good.ask, head)


_HEADS_OF: Final = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.PULL_MESSAGE,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.HEART_BEAT,
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
)


#: What fastjson2 ignores or refuses, or, where a number is null, reads as 0.
_FASTJSON_2: Final = re.compile(
    r"\d+ (body|header) (capitalised( within)?|snake_case|kebab_case|upper|single quotes|bare keys"
    r"|BOM|comments|(empty texts|null) for numbers)"
    r"|200 body (absent|an unknown key only|\w+ null)"
)


def differences(official: World, ours: World) -> Iterator[tuple[Case, Kept | None, str]]:
    """Every case that the two answer in another way, why that is meant, if it is, and a text. With
    official servers since 5.4, without what only fastjson2 reads in another way."""
    for number, case in enumerate(cases()):
        theirs = official.run(case, number)
        here = ours.run(case, number)
        if theirs != here:
            kept = next((k for k in KEPT if _is_meant(k, case, theirs, here)), None)
            if kept is None and VERSION >= "5.4" and _FASTJSON_2.fullmatch(case.name):
                continue
            yield case, kept, f"{case.name}: official {theirs}, ours {here} ({ours.remark})"


def _is_meant(
    kept: Kept, case: Case, theirs: Mapping[str, object], here: Mapping[str, object]
) -> bool:
    return (theirs["code"], here["code"]) == (kept.official, kept.ours) and any(
        re.fullmatch(re.escape(name).replace(r"\*", ".*"), case.name) for name in kept.requests
    )
