"""Java properties text, and typed configurations read from it.

The files of official brokers and name servers (broker.conf, namesrv.conf), and the bodies of the
requests that show and change their settings, are Java properties: `key=value` lines with `#`
comments and backslash escapes. A configuration here is a msgspec struct whose fields have
RocketMQ's own property names.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, TypeVar, get_args

import msgspec

T = TypeVar("T", bound=msgspec.Struct)


class ConfigError(ValueError):
    """A property has a value that is not allowed. `allowed` says in words what is."""

    def __init__(self, key: str, value: str, allowed: str) -> None:
        super().__init__(f"{key} = {value!r}: must be {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed


# Text

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_KEY = re.compile(r"((?:[^\\=:\s]|\\.)*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)


def decode_properties(content: bytes) -> tuple[str, str]:
    """The text of a file, and its encoding: UTF-8, else ISO-8859-1, as Java reads every such file.

    A byte order mark is left out."""
    try:
        return content.decode("utf-8-sig"), "utf-8"
    except UnicodeDecodeError:
        return content.decode("latin-1"), "latin-1"


def parse_properties(text: str) -> dict[str, str]:
    """Reads properties as java.util.Properties does; a later line wins over an earlier one."""
    properties = {}
    for line in _logical_lines(text):
        match = _KEY.match(line)
        assert match is not None  # the pattern matches the empty text
        properties[_unescape(match[1])] = _unescape(line[match.end() :])
    return properties


def format_properties(properties: Mapping[str, str]) -> str:
    """`key=value` lines sorted by key, escaped where Java would read something else."""
    return "".join(
        f"{_escape(key, _KEY_SPECIAL)}={_escape(value, _VALUE_SPECIAL)}\n"
        for key, value in sorted(properties.items())
    )


def amend_properties(text: str, changes: Mapping[str, str]) -> str:
    """`text` with other values of some keys; comments, order and everything else stay.

    Where that can not be done line by line (values over several lines), all is written anew.
    """
    wanted = parse_properties(text) | dict(changes)
    left = dict(changes)
    lines = []
    for line in text.splitlines():
        match = _KEY.match(line.lstrip(" \t\f"))
        assert match is not None  # the pattern matches the empty text
        key = _unescape(match[1])
        if key not in changes:
            lines.append(line)
        elif key in left:
            lines.append(format_properties({key: left.pop(key)}).rstrip("\n"))
    amended = "".join(f"{line}\n" for line in lines) + format_properties(left)
    return amended if parse_properties(amended) == wanted else format_properties(wanted)


def _logical_lines(text: str) -> Iterable[str]:
    """Lines without comments, those that end in an odd number of backslashes joined."""
    joined = ""
    for line in re.split(r"\r\n|\n|\r", text):
        line = line.lstrip(" \t\f")
        if not joined and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
        else:
            yield joined + line
            joined = ""
    if joined:
        yield joined


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    units = _ESCAPE.sub(
        lambda m: chr(int(m[1], 16)) if m[1] else _ESCAPES.get(m[2], m[2] or ""), text
    )
    # \ud83d\ude00 is one character in Java.
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


_KEY_SPECIAL = re.compile(r"[\\\s=:#!]|[^\x20-\x7e]")
_VALUE_SPECIAL = re.compile(r"^ |\\|[^\x20-\x7e]")


def _escape(text: str, special: re.Pattern[str]) -> str:
    def escaped(match: re.Match[str]) -> str:
        character = match[0]
        if " " <= character <= "~":
            return "\\" + character
        units = character.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

    return special.sub(escaped, text)


# Configurations


def load_config(
    cls: type[T], text: str, known: frozenset[str] = frozenset()
) -> tuple[T, list[str]]:
    """A configuration from properties text, and warnings for keys that have no effect.

    Args:
        cls: a struct with a default for every field; its encoded names are the property names.
        known: the property names that RocketMQ has, see `pocketmq.remoting.official_config_keys`.

    Raises:
        ConfigError: a value is not of its field's type or range.
    """
    fields = {field.encode_name: field for field in msgspec.structs.fields(cls)}
    values = {}
    warnings = []
    for key, value in parse_properties(text).items():
        if key in fields:
            values[fields[key].name] = _convert(key, value, fields[key].type)
        elif key in known:
            warnings.append(f"{key}: a property of RocketMQ that has no effect here")
        else:
            warnings.append(f"{key}: unknown property{_hint(key, fields.keys() | known)}")
    return cls(**values), warnings


def read_property(cls: type[msgspec.Struct], key: str, value: str) -> Any:
    """The value of one property as its field in `cls` holds it.

    Raises:
        KeyError: `cls` has no such property.
        ConfigError: the value is not of the field's type or range.
    """
    for field in msgspec.structs.fields(cls):
        if field.encode_name == key:
            return _convert(key, value, field.type)
    raise KeyError(key)


def config_properties(config: msgspec.Struct) -> dict[str, str]:
    """All settings of a configuration as property texts, without those that are None."""
    settings = (
        (field.encode_name, getattr(config, field.name)) for field in msgspec.structs.fields(config)
    )
    return {key: _text(value) for key, value in settings if value is not None}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        value = value.value
    return str(value)


def _hint(key: str, names: Iterable[str]) -> str:
    by_lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(key.lower(), by_lower, n=1, cutoff=0.7)
    return f", did you mean {by_lower[close[0]]}?" if close else ""


def _convert(key: str, value: str, kind: Any) -> Any:
    value = value.strip()
    try:
        # msgspec would also take 0, 1, and other spellings for booleans.
        if bool in _members(kind) and value.lower() not in ("true", "false"):
            raise ConfigError(key, value, _allowed(kind))
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        raise ConfigError(key, value, _allowed(kind)) from None


def _members(kind: Any) -> tuple[Any, ...]:
    """The types that a field's value may have, without annotations."""
    if hasattr(kind, "__metadata__"):
        return _members(kind.__origin__)
    arguments = get_args(kind)
    return tuple(m for a in arguments for m in _members(a)) if arguments else (kind,)


def _allowed(kind: Any) -> str:
    if hasattr(kind, "__metadata__"):
        for meta in kind.__metadata__:
            if isinstance(meta, msgspec.Meta) and meta.description:
                return meta.description
        return _allowed(kind.__origin__) + "".join(map(_range, kind.__metadata__))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " or ".join(str(member.value) for member in kind)
    arguments = get_args(kind)
    if arguments:
        return " or ".join(_allowed(argument) for argument in arguments)
    if isinstance(kind, type):
        return _WORDS.get(kind, kind.__name__)
    return str(kind)


_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    type(None): "nothing",
}


def _range(meta: Any) -> str:
    if not isinstance(meta, msgspec.Meta):
        return ""
    low, high = meta.ge, meta.le
    if low is not None and high is not None:
        text = f" from {low} to {high}"
    elif low is not None:
        text = f" of at least {low}"
    elif high is not None:
        text = f" of at most {high}"
    else:
        text = ""
    if meta.pattern is not None:
        text += f" that matches {meta.pattern}"
    return text
