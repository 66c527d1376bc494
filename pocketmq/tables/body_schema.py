"""Schemas of JSON and msgpack bodies: columns with types, in the syntax of Spark's `schema(...)`.

    id bigint NOT NULL, name string, tags array<string>, paid struct<sum: decimal(10,2), at: date>

A field that a body lacks is null, unless it is NOT NULL; a field that the schema lacks is ignored.
Each type consists of the Arrow type of the column and the Python type with which msgspec checks and
decodes a body.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Mapping
from types import GenericAlias
from typing import Annotated, Any, Final, NamedTuple, Required, TypedDict

import msgspec
import pyarrow as pa

from pocketmq.tables.errors import BodySchemaError

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


class BodyType(NamedTuple):
    """The type of a body or of a part of it: an Arrow type, and the Python type of its values."""

    arrow: Any
    python: Any


def _whole(bits: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)]


_SIMPLE: Final[Mapping[str, BodyType]] = {
    "boolean": BodyType(pa.bool_(), bool),
    "tinyint": BodyType(pa.int8(), _whole(8)),
    "smallint": BodyType(pa.int16(), _whole(16)),
    "int": BodyType(pa.int32(), _whole(32)),
    "bigint": BodyType(pa.int64(), _whole(64)),
    "float": BodyType(pa.float32(), float),
    "double": BodyType(pa.float64(), float),
    "string": BodyType(pa.string(), str),
    "binary": BodyType(pa.binary(), bytes),
    "date": BodyType(pa.date32(), datetime.date),
    "timestamp": BodyType(TIMESTAMP, datetime.datetime),
}
_TYPES: Final = ", ".join([*_SIMPLE, "decimal(p,s), array<T>, map<string,T>, struct<name: T, ...>"])
_TOKEN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+)|([<>(),:]))")
_DEEPEST: Final = 50


def parse(text: str) -> BodyType:
    """Return the type of bodies with the columns in `text`. Raises BodySchemaError."""
    parser = _Parser(text)
    found = parser.fields(end="")
    if not found.arrow.num_fields:
        raise parser.error("a schema needs at least one column")
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self.token = ""
        self._quoted = False
        self._start = 0
        self._next()

    def error(self, problem: str) -> BodySchemaError:
        line = self._text.count("\n", 0, self._start) + 1
        column = self._start - self._text.rfind("\n", 0, self._start)
        return BodySchemaError(
            f"line {line}, column {column}: {problem}; a schema is a list of columns such as "
            f"'id bigint NOT NULL, name string'; the types are {_TYPES}"
        )

    def fields(self, end: str) -> BodyType:
        """Read `name type, name type` up to the token `end`; the empty text is the end of all."""
        arrow: list[Any] = []
        python: dict[str, Any] = {}
        while self.token != end or self._quoted:
            name = self._name()
            if name in python:
                raise self.error(f"there are two columns named {name}")
            if self.token == ":":
                self._next()
            kind = self._type()
            arrow.append(pa.field(name, kind.arrow))
            required = self._not_null()
            python[name] = Required[kind.python] if required else kind.python | None
            if self.token != ",":
                break
            self._next()
        self._expect(end)
        # Not called by its own name: type checkers would expect literals.
        make: Any = TypedDict
        made = make("object", python, total=False)
        return BodyType(pa.struct(arrow), made)

    def _type(self) -> BodyType:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self.error(f"types are nested more than {_DEEPEST} deep")
        name = self._name().lower()
        if name in _SIMPLE:
            found = _SIMPLE[name]
        elif name == "decimal":
            found = self._decimal()
        elif name == "array":
            self._expect("<")
            item = self._type()
            self._expect(">")
            found = BodyType(
                pa.list_(pa.field("element", item.arrow)), GenericAlias(list, (item.python | None,))
            )
        elif name == "map":
            self._expect("<")
            if self._name().lower() != "string":
                raise self.error("the keys of a map must be strings")
            self._expect(",")
            item = self._type()
            self._expect(">")
            found = BodyType(
                pa.map_(pa.string(), item.arrow), GenericAlias(dict, (str, item.python | None))
            )
        elif name == "struct":
            self._expect("<")
            found = self.fields(end=">")
            if not found.arrow.num_fields:
                raise self.error("a struct needs at least one field")
        else:
            raise self.error(f"there is no type {name}")
        self._depth -= 1
        return found

    def _decimal(self) -> BodyType:
        precision, scale = 10, 0
        if self.token == "(":
            self._next()
            precision = self._number()
            if self.token == ",":
                self._next()
                scale = self._number()
            self._expect(")")
        if not 1 <= precision <= 38 or scale > precision:
            raise self.error(f"there is no decimal({precision},{scale}): at most 38 digits")
        return BodyType(pa.decimal128(precision, scale), decimal.Decimal)

    def _not_null(self) -> bool:
        if self._quoted or self.token.lower() != "not":
            return False
        self._next()
        if self.token.lower() != "null":
            raise self.error("NOT needs NULL after it")
        self._next()
        return True

    def _number(self) -> int:
        if not self.token.isdecimal():
            raise self.error(f"need a number, found {self.token or 'the end'}")
        number = int(self.token[:4])
        self._next()
        return number

    def _name(self) -> str:
        name = self.token
        if not self._quoted and not re.fullmatch(r"\w+", name):
            raise self.error(f"need a name, found {name or 'the end'}")
        self._next()
        return name

    def _expect(self, token: str) -> None:
        if self.token != token or self._quoted:
            raise self.error(f"need {token or 'a comma'}, found {self.token or 'the end'}")
        if token:
            self._next()

    def _next(self) -> None:
        rest = self._text[self._at :]
        self._start = self._at + len(rest) - len(rest.lstrip())
        if not rest.strip():
            self.token, self._quoted = "", False
            return
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise self.error(f"cannot read {rest.strip()[:10]!r}")
        self._at = match.end()
        quoted, word, sign = match.groups()
        self._quoted = quoted is not None
        self.token = quoted.replace("``", "`") if quoted is not None else word or sign
