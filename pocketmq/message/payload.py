"""Bodies as JSON: objects to bytes for sending, and bytes to typed objects on receipt.

| type | to bytes by | from bytes by |
|---|---|---|
| a pydantic model | its `model_dump_json` | its `model_validate_json` |
| `msgspec.Struct`, dataclass, TypedDict, attrs, enum, `list[...]`, `dict`, … | msgspec | msgspec |

pydantic is not needed here and not imported: a model has the methods.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

#: Makes an object from a body; raises PayloadError.
Decoder: TypeAlias = Callable[[bytes], Any]

#: Wrong fields that an error names.
SHOWN_FIELDS = 8
#: The value of a field in an error of msgspec.
_VALUE = re.compile(r"(?s)^(Invalid (?:enum )?value) .*?(?= - at `[^`]*`$|$)")


class PayloadError(ValueError):
    """A body does not match its type.

    The text names the fields. It shows nothing of the body, since it appears in logs and traces.
    """


def encode_payload(payload: object) -> bytes:
    """Encode an object as JSON.

    Raises:
        TypeError: JSON or msgspec cannot represent it, for example a float that is NaN or infinite.
    """
    dump = getattr(type(payload), "model_dump_json", None)
    if dump is not None:
        return str(dump(payload)).encode()
    try:
        encoded = msgspec.json.encode(payload)
        # msgspec writes these as null, which a consumer takes for a missing value.
        if b"null" in encoded and _has_no_number(msgspec.to_builtins(payload)):
            raise ValueError("a float is NaN or infinite")
        return encoded
    except (TypeError, msgspec.MsgspecError, OverflowError, ValueError) as error:
        kind = type(payload).__name__
        raise TypeError(f"payload of type {kind} cannot be sent as JSON: {error}") from None


def _has_no_number(value: object) -> bool:
    """Whether a float in it is NaN or infinite."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_no_number, value.values())) or any(map(_has_no_number, value))
    return isinstance(value, list | tuple | set | frozenset) and any(map(_has_no_number, value))


def decode_payload(body: bytes, kind: Any = Any) -> Any:
    """Decode a JSON body as `kind`.

    Raises:
        PayloadError: the body is not JSON, or does not fit; the text names the fields.
        TypeError: `kind` is not a type that can be decoded.
    """
    return decoder_of(kind)(body)


def decoder_of(kind: Any) -> Decoder:
    """Make the decoder of a type.

    Raises:
        TypeError: it is not a type that can be decoded.
    """
    try:
        return _decoder_of(kind)
    except TypeError as error:
        if isinstance(kind, type) or not _unhashable(kind):
            raise TypeError(f"{kind!r} is not a type that can be decoded: {error}") from None
        raise TypeError(f"{kind!r} is not a type that can be decoded") from None


def _unhashable(kind: Any) -> bool:
    try:
        hash(kind)
    except TypeError:
        return True
    return False


@lru_cache(maxsize=256)
def _decoder_of(kind: Any) -> Decoder:
    name = getattr(kind, "__name__", repr(kind))
    validate = getattr(kind, "model_validate_json", None)
    if validate is not None:
        return _of_model(validate, name)
    if not isinstance(kind, type) and not hasattr(kind, "__origin__") and kind is not Any:
        # msgspec takes more (unions, literals), but an instance is a mistake.
        msgspec.inspect.type_info(kind)
    decode = msgspec.json.Decoder(kind).decode

    def decoded(body: bytes) -> Any:
        try:
            return decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            told = _VALUE.sub(r"\1", str(error))
            raise PayloadError(
                f"the body of {len(body)} bytes does not fit {name}: {told}"
            ) from None

    return decoded


def _of_model(validate: Callable[[bytes], Any], name: str) -> Decoder:
    def decoded(body: bytes) -> Any:
        try:
            return validate(body)
        except ValueError as error:  # pydantic's ValidationError is one
            told = _wrong_fields(error)
            raise PayloadError(
                f"the body of {len(body)} bytes does not fit {name}: {told}"
            ) from None

    return decoded


def _wrong_fields(error: ValueError) -> str:
    errors = getattr(error, "errors", None)
    if errors is None:
        return str(error)
    wrong = errors()
    told = [
        f"{'.'.join(map(str, one['loc'])) or 'the body'}: {one['msg']}"
        for one in wrong[:SHOWN_FIELDS]
    ]
    if len(wrong) > SHOWN_FIELDS:
        told.append(f"and {len(wrong) - SHOWN_FIELDS} more")
    return "; ".join(told)
