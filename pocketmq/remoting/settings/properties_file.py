"""Java properties text, and typed configurations read from it.

The files of official brokers and name servers (broker.conf, namesrv.conf), and the bodies of the
requests that show and change their settings, are Java properties: `key=value` lines with `#`
comments and backslash escapes. A configuration here is a msgspec struct whose fields have
RocketMQ's own property names.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar, get_args

import msgspec

from pocketmq.remoting.settings.reachable import closed_directory

T = TypeVar("T", bound=msgspec.Struct)


#: Characters of the longest line in a configuration, continuation lines included.
MAX_LINE: Final = 65_536


class ConfigError(ValueError):
    """A property has a value that is not allowed.

    Attributes:
        key, value: the property as written.
        allowed: what is allowed, in words.
        where: the place of the property, such as `broker.conf:12`; may be empty.
    """

    def __init__(
        self, key: str, value: str, allowed: str, *, where: str = "", text: str = ""
    ) -> None:
        """`text` replaces the usual sentence "KEY = VALUE: must be ALLOWED"."""
        text = text or f"{key} = {value!r}: must be {allowed}"
        super().__init__(f"{where}: {text}" if where else text)
        self.key = key
        self.value = value
        self.allowed = allowed
        self.where = where
        self.text = text


class ConfigErrors(ConfigError):
    """All errors of a configuration; its text has a line for each.

    The attributes of `ConfigError` are those of the first error.

    Attributes:
        errors: in the order of the files.
        warnings: what `load_config` would have returned without the errors.
    """

    def __init__(self, errors: Iterable[ConfigError], warnings: Iterable[str] = ()) -> None:
        self.errors = tuple(errors)
        self.warnings = tuple(warnings)
        first = self.errors[0]
        super().__init__(
            first.key, first.value, first.allowed, text="\n".join(map(str, self.errors))
        )
        self.where = first.where


def check_home(key: str, path: str) -> None:
    """Check that this user can reach a path, which may begin with `~` and need not exist.

    Raises:
        ConfigError: the user has no home directory, or may not enter a directory of the path: the
            home directory of another user, in a container that runs with any id.
    """
    try:
        place = Path(path).expanduser()
    except RuntimeError:
        text = (
            f"{key} = {path!r}: this user has no home directory (HOME is not set, and its id has "
            "no entry in passwd): set HOME, or name a directory without ~"
        )
        raise ConfigError(key, path, "a path without ~", text=text) from None
    closed = closed_directory(place.absolute()) if path else None
    if closed is not None:
        text = (
            f"{key} = {path!r}: this user may not enter {closed}: set {key} to a path elsewhere, "
            "set HOME if that is the home directory of another user, or change its permissions"
        )
        raise ConfigError(key, path, "a path that this user can reach", text=text)


# Text

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_KEY = re.compile(r"((?:[^\\=:\s]|\\.)*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)


def decode_properties(content: bytes) -> tuple[str, str]:
    """Return the text of a file, and its encoding: UTF-8, else ISO-8859-1, as Java reads every such
    file.

    A byte order mark is left out."""
    try:
        return content.decode("utf-8-sig"), "utf-8"
    except UnicodeDecodeError:
        return content.decode("latin-1"), "latin-1"


def parse_properties(text: str) -> dict[str, str]:
    """Read properties as java.util.Properties does; a later line wins over an earlier one."""
    return dict(_property(line) for _, line in _logical_lines(text))


def format_properties(properties: Mapping[str, str]) -> str:
    """Return `key=value` lines sorted by key, escaped so that Java reads them back."""
    return "".join(
        f"{_escape(key, _KEY_SPECIAL)}={_escape(value, _VALUE_SPECIAL)}\n"
        for key, value in sorted(properties.items())
    )


def amend_properties(text: str, changes: Mapping[str, str]) -> str:
    """Return `text` with other values of some keys; comments, order and everything else stay.

    If that cannot be done line by line (values over several lines), all is rewritten.
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


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not comments, each with its number from 1.

    A line that ends in an odd number of backslashes is joined with the next one.
    """
    parts: list[str] = []
    began = 0
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        line = line.lstrip(" \t\f")
        if not parts:
            if not line or line[0] in "#!":
                continue
            began = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
        else:
            parts.append(line)
            yield began, "".join(parts)
            parts.clear()
    if any(parts):
        yield began, "".join(parts)


def _property(line: str) -> tuple[str, str]:
    match = _KEY.match(line)
    assert match is not None  # the pattern matches the empty text
    return _unescape(match[1]), _unescape(line[match.end() :])


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


class Setting(NamedTuple):
    """One property of a configuration; `where` is its place, such as `broker.conf:12`."""

    key: str
    value: str
    where: str


class Settings(NamedTuple):
    """The properties of one source: a file, or options of a command line."""

    settings: tuple[Setting, ...]
    errors: tuple[ConfigError, ...] = ()

    @classmethod
    def of_text(cls, text: str, name: str = "") -> Settings:
        """Read properties text; `name` is the file's, for errors and warnings."""
        settings = []
        errors = []
        for number, line in _logical_lines(text):
            where = f"{name}:{number}" if name else ""
            if len(line) > MAX_LINE:
                key = line[:40]
                allowed = f"a line of at most {MAX_LINE} characters"
                says = f"the line has {len(line)} characters, at most {MAX_LINE} are allowed"
                text = f"{says}: {key!r}..."
                errors.append(ConfigError(key, "", allowed, where=where, text=text))
            else:
                settings.append(Setting(*_property(line), where))
        return cls(tuple(settings), tuple(errors))

    @classmethod
    def of_file(cls, path: Path, option: str = "-c") -> Settings:
        """Read a properties file that the user named with `option`.

        Raises:
            ConfigError: the file cannot be read.
        """
        try:
            content = path.read_bytes()
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(option, str(path), f"a readable file ({why})") from None
        return cls.of_text(decode_properties(content)[0], str(path))

    @classmethod
    def of_options(cls, options: Iterable[tuple[str, str]], name: str = "") -> Settings:
        """Take settings from a command line or a program; `name` is the option's, for errors."""
        return cls(tuple(Setting(key, value, name) for key, value in options))

    def select(self, wanted: Callable[[str], bool]) -> Settings:
        """Return the settings whose keys are wanted, and all errors."""
        return Settings(tuple(each for each in self.settings if wanted(each.key)), self.errors)


#: What people mean as a comment after a value.
_NOTE: Final = re.compile(r"\s#\s")
_NO_NOTE: Final = "a comment needs a line of its own"

#: Says what is wrong with a value: text that follows the place. None when the value is fine.
Check = Callable[[str], str | None]


def load_config(
    cls: type[T],
    *sources: Settings | str,
    known: frozenset[str] = frozenset(),
    checks: Mapping[str, Check] | None = None,
) -> tuple[T, list[str]]:
    """Return a configuration from properties, and warnings for keys that have no effect.

    Args:
        cls: a struct with a default for every field; its encoded names are the property names.
        sources: files, options, or the text of a file without a name. A later source wins over an
            earlier one, and a later line over an earlier line.
        known: the property names that RocketMQ has, see `official_config_keys`.
        checks: further checks by property name, also for properties that `cls` does not have. They
            get the value without the blanks around it.

    Raises:
        ConfigErrors: some values are not allowed: all of them, and the warnings.
    """
    fields = {field.encode_name: field for field in msgspec.structs.fields(cls)}
    values = {}
    errors: list[ConfigError] = []
    warnings = []
    settings: dict[str, Setting] = {}
    for source in sources:
        read = Settings.of_text(source) if isinstance(source, str) else source
        errors += read.errors
        settings.update((setting.key, setting) for setting in read.settings)
    for key, value, where in settings.values():
        place = f"{where}: " if where else ""
        check = (checks or {}).get(key)
        wrong = check(value.strip()) if check is not None else None
        if wrong is not None:
            errors.append(ConfigError(key, value.strip(), wrong, where=where, text=wrong))
        elif key in fields:
            noted = _NOTE.search(value) is not None
            try:
                values[fields[key].name] = _convert(key, value, fields[key].type)
            except ConfigError as error:
                allowed = f"{error.allowed}; {_NO_NOTE}" if noted else error.allowed
                errors.append(ConfigError(error.key, error.value, allowed, where=where))
            else:
                if noted:  # not with the value, which may be a password
                    warnings.append(
                        f"{place}{key}: what follows # is part of the value; {_NO_NOTE}"
                    )
        elif key in known:
            warnings.append(f"{place}{key}: a property of RocketMQ that has no effect here")
        else:
            hint = _hint(key, fields.keys() | known)
            warnings.append(f"{place}{key}: unknown property{hint}")
    if errors:
        raise ConfigErrors(errors, warnings)
    return cls(**values), warnings


def read_property(cls: type[msgspec.Struct], key: str, value: str) -> Any:
    """Return the value of one property as its field in `cls` holds it.

    Raises:
        KeyError: `cls` has no such property.
        ConfigError: the value is not of the field's type or range.
    """
    return _convert(key, value, _types(cls)[key])


@functools.cache
def _types(cls: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the type of each property; to find them takes half a millisecond."""
    return {field.encode_name: field.type for field in msgspec.structs.fields(cls)}


def config_properties(config: msgspec.Struct) -> dict[str, str]:
    """Return all settings of a configuration as property texts, without those that are None."""
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
    """Return the types that a field's value may have, without annotations."""
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
