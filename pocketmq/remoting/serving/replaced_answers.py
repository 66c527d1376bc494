"""Replaces answers that are encoded, but have not left yet. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pocketmq.message.buffers import Buffer
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.frames.frame import FrameSplitter, decode_command
from pocketmq.remoting.serving.request import Response

_NO_LIMIT = 1 << 31  # these frames are this server's own


def replace_answers(
    buffers: Iterable[Buffer],
    opaques: Collection[int],
    response: Response,
    within: int | None = None,
) -> tuple[list[Buffer], set[int]]:
    """Return whole frames with `response`, which has no body, for each answer to one of `opaques`;
    and the opaques that were found.

    `within`: the opaque of a parent of the Batch-Protocol; the answers of its children are
    replaced then.
    """
    replaced: list[Buffer] = []
    found: set[int] = set()
    for frame in FrameSplitter(_NO_LIMIT).feed(b"".join(buffers)):
        command = decode_command(frame)
        opaque, kind = command.opaque, command.serialize_type
        if command.is_response and within is None and opaque in opaques:
            found.add(opaque)
            replaced.append(response.head(kind, opaque, 0))
        elif command.is_response and opaque == within:
            children, found = replace_answers((command.body,), opaques, response)
            size = sum(map(len, children))
            parent = Response(ResponseCode.SUCCESS, command.remark, ext_fields=command.ext_fields)
            replaced += (parent.head(kind, opaque, size), *children)
        else:
            replaced += (len(frame).to_bytes(4, "big"), frame)
    return replaced, found
