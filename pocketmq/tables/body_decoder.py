"""Decodes the bodies of Arrow batches by a schema, and sets aside those that do not decode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec
import numpy as np
import pyarrow as pa

from pocketmq._extras import require
from pocketmq.tables import avro_schema, body_schema
from pocketmq.tables.errors import BodySchemaError

BodyFormat = Literal["json", "avro", "msgpack"]
BODY_FORMATS: Final[tuple[str, ...]] = get_args(BodyFormat)
REASON: Final = pa.field("reason", pa.string())
_LONGEST_REASON: Final = 500


class Decoded(NamedTuple):
    """One batch, split.

    Attributes:
        rows: the messages whose body was decoded; the column `body` is a struct.
        dead: the others, unchanged, with `reason` as the last column.
    """

    rows: Any
    dead: Any


class BodyDecoder:
    """Decodes bodies that are JSON, msgpack, or Avro without a header.

    Can be pickled, so that Spark can send it to executors.

    Args:
        format: `json`, `msgpack` or `avro`.
        schema: the columns of a body with their types (see docs/tables.md), or an Avro schema.

    Raises:
        BodySchemaError: the schema cannot be used.
        MissingExtra: Avro needs `pocketmq[tables]`.
    """

    def __init__(self, format: BodyFormat, schema: str) -> None:
        self._arguments = (format, schema)
        self._decode: Callable[[bytes], Any]
        if format == "avro":
            self.type, self._decode = _avro(schema)
        elif format == "json":
            self.type, python = body_schema.parse(schema)
            self._decode = msgspec.json.Decoder(python).decode
        elif format == "msgpack":
            self.type, python = body_schema.parse(schema)
            self._decode = msgspec.msgpack.Decoder(python).decode
        else:
            raise BodySchemaError(f"there is no format {format!r}: {', '.join(BODY_FORMATS)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return BodyDecoder, self._arguments

    def schema(self, messages: Any) -> Any:
        """Return the schema of decoded rows, from that of the messages."""
        at = messages.get_field_index("body")
        if at < 0:
            raise BodySchemaError("there is no column named body to decode")
        return messages.set(at, pa.field("body", self.type))

    def decode(self, batch: Any) -> Decoded:
        """Decode the column `body` of a `pyarrow.RecordBatch`."""
        bodies, reasons = self._bodies(batch.column("body"))
        schema = self.schema(batch.schema)
        dead_schema = batch.schema.append(REASON)
        if not reasons:
            columns = [bodies if name == "body" else batch.column(name) for name in schema.names]
            rows = pa.RecordBatch.from_arrays(columns, schema=schema)
            return Decoded(rows, _empty(dead_schema))
        good = np.ones(batch.num_rows, np.bool_)
        good[list(reasons)] = False
        kept, dead = batch.filter(pa.array(good)), batch.filter(pa.array(~good))
        columns = [bodies if name == "body" else kept.column(name) for name in schema.names]
        texts = pa.array([reasons[row] for row in sorted(reasons)], pa.string())
        return Decoded(
            pa.RecordBatch.from_arrays(columns, schema=schema),
            pa.RecordBatch.from_arrays([*dead.columns, texts], schema=dead_schema),
        )

    def _bodies(self, column: Any) -> tuple[Any, dict[int, str]]:
        """Return the decoded bodies, and the reason for each other row."""
        values: list[Any] = []
        places: list[int] = []
        reasons: dict[int, str] = {}
        for row, body in enumerate(column.to_pylist()):
            if body is None:
                reasons[row] = "the body is null"
                continue
            try:
                value = self._decode(body)
            # For arbitrary input, a decoder may raise any exception, and no body may stop the
            # export.
            except Exception as error:
                reasons[row] = _reason(error)
            else:
                values.append(value)
                places.append(row)
        try:
            return pa.array(values, self.type), reasons
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            pass
        # A value does not fit its column, such as a decimal with too many digits.
        kept = []
        for row, value in zip(places, values, strict=True):
            try:
                pa.array([value], self.type)
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                reasons[row] = _reason(error)
            else:
                kept.append(value)
        return pa.array(kept, self.type), reasons


def decode_batches(decoder: BodyDecoder) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function for Spark's `mapInArrow` that decodes all rows.

    `body` becomes a struct, null where it cannot be decoded. The last two columns are null where it
    can: `rawBody` has the bytes, and `reason` says why.

    Example::

        decoder = BodyDecoder("json", "id bigint, name string")
        frame.mapInArrow(decode_batches(decoder), "topic string, body struct<id: bigint, "
            "name: string>, rawBody binary, reason string")
    """

    def decoded(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            bodies, reasons = decoder._bodies(batch.column("body"))
            numbers = np.cumsum([row not in reasons for row in range(batch.num_rows)]) - 1
            bad = np.isin(np.arange(batch.num_rows), list(reasons))
            taken = bodies.take(pa.array(numbers, mask=bad))
            raw = pa.array(
                [
                    body if row in reasons else None
                    for row, body in enumerate(batch["body"].to_pylist())
                ],
                pa.binary(),
            )
            texts = pa.array([reasons.get(row) for row in range(batch.num_rows)], pa.string())
            schema = decoder.schema(batch.schema).append(pa.field("rawBody", pa.binary()))
            columns = [taken if name == "body" else batch[name] for name in batch.schema.names]
            yield pa.RecordBatch.from_arrays([*columns, raw, texts], schema=schema.append(REASON))

    return decoded


def _empty(schema: Any) -> Any:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _reason(error: Exception) -> str:
    text = str(error) or "the body ends too early"
    return text.encode(errors="replace").decode()[:_LONGEST_REASON]


def _avro(text: str) -> tuple[Any, Callable[[bytes], Any]]:
    schema, arrow = avro_schema.parse(text)
    require("tables", "decoding Avro")
    import fastavro

    try:
        parsed = fastavro.parse_schema(schema)
    except Exception as error:  # its errors have no common base class
        raise BodySchemaError(f"the Avro schema cannot be used: {error}") from None

    def decode(body: bytes) -> Any:
        stream = BytesIO(body)
        value = fastavro.schemaless_reader(stream, parsed, None)
        if stream.tell() < len(body):
            left = len(body) - stream.tell()
            raise ValueError(f"{left} bytes are left behind the record: the schema is another one")
        return value

    return arrow, decode
