"""The error for an option, and the names of options.

No error shows the value of an option that is a secret, or may have been meant as one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

SECURITY_NAMES: Final = (
    "accessKey",
    "secretKey",
    "securityToken",
    "tls",
    "tlsCaFile",
    "tlsCertFile",
    "tlsKeyFile",
)
"""The options with credentials for brokers and name servers; see `connection_options`."""
_SECRET: Final = re.compile("secret|token|password|access.?key", re.IGNORECASE)


class OptionError(ValueError):
    """An invalid value of an option, or an unknown option."""

    def __init__(self, name: str, value: str, wanted: str) -> None:
        super().__init__(f"option {name} = {value!r}: {wanted}")
        self.name = name
        self.value = value


def shown(name: str, value: str, wanted: str) -> OptionError:
    """Return the error for an option, without its value if that is or may be a secret."""
    return OptionError(name, "(hidden)" if _SECRET.search(name) else value, wanted)


def two_of_one(
    broker: str,
    place: Path | str,
    other: Path | str,
    reason: str = "offsets are kept by the broker's name",
) -> OptionError:
    """Return the error for two stores of one broker, where only one can be read, and why."""
    return OptionError(
        "path",
        str(place),
        f"this is a store of the broker {broker}, like {other}; {reason}, so name one of the two",
    )


def by_proper_name(
    options: Mapping[str, str],
    names: Sequence[str],
    error: Callable[[str, str, str], OptionError],
    kind: str = "option",
) -> dict[str, str]:
    """Return the options by their proper names. Raises `error`(name, value, wanted) for one that is
    not among `names`; `kind` describes these."""
    proper = {name.lower(): name for name in names}
    known = {}
    for name, value in without_catalog(options).items():
        if name.lower() not in proper:
            near = nearest(name, names)
            hint = f"did you mean {near}?" if near else f"known: {', '.join(names)}"
            raise error(name, value, f"there is no such {kind}; {hint}")
        known[proper[name.lower()]] = value
    return known


_CATALOG: Final = ("provider", "owner")
"""An option that every table of Spark's catalog has."""
_GIVEN: Final = "option."
"""The prefix of the copies that CREATE TABLE makes of the given options."""


def is_of_catalog(options: Mapping[str, str]) -> bool:
    """Return whether options are those of a table being created in Spark's catalog."""
    return {name.lower() for name in options}.issuperset(_CATALOG)


def without_catalog(options: Mapping[str, str]) -> dict[str, str]:
    """Return options without those that Spark's catalog adds for a table: its own properties and
    the user's. `path` is the location of the table."""
    by_lower = {name.lower(): (name, value) for name, value in options.items()}
    if not is_of_catalog(options):
        return dict(options)
    given = {name.removeprefix(_GIVEN) for name in by_lower if name.startswith(_GIVEN)}
    return dict(each for name, each in by_lower.items() if name == "path" or name in given)


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar of `names`; None if none is similar."""
    by_lower = {each.lower(): each for each in names}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[close[0]] if close else None
