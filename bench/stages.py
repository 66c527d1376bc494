"""`python -m bench.stages`: where the time of a message goes inside our broker.

One broker in this process, no sockets: frames as the load generator sends them go straight into a
server connection. Figures are microseconds of this thread's CPU time per message, the least of many
short runs, so they hold on a busy machine too. They leave out the system calls of the network and
what the store's own threads do.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import load_broker_config
from pocketmq.message.batch_body import encode_batch
from pocketmq.remoting.answers.batch import SUCCESS_REMARK, child_frames
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.frames.frame import decode_command, encode_command
from pocketmq.remoting.frames.splitter import FrameSplitter
from pocketmq.remoting.headers.admin import BatchRequestHeader
from pocketmq.remoting.headers.base import Header
from pocketmq.remoting.headers.pull import PullMessageRequestHeader
from pocketmq.remoting.headers.send import SendMessageRequestHeaderV2
from pocketmq.remoting.serving.request import RequestDecoder
from pocketmq.remoting.serving.server import RemotingServer, ServerConnection

TOPIC = "stages"
PIPELINE = 64
BATCH = 32
CHILDREN = 20
RUNS = 60
UNKNOWN_CODE = 9_999
PROPERTIES = "UNIQ_KEY\x017F00000100002A139A8C4E5B4A2F0000\x02WAIT\x01true\x02TAGS\x01TagA\x02"
BODY = b"0123456789abcdef" * 64


class Sink(asyncio.Transport):
    """A transport that takes everything, and keeps what it got last."""

    def __init__(self) -> None:
        super().__init__()
        self.last: list[bytes | bytearray | memoryview] = []

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 50_000) if name == "peername" else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.last = [data]

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.last = list(list_of_data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False


def least(work: Callable[[], object], messages: int) -> float:
    """Microseconds per message of the quickest of RUNS calls."""
    best = float("inf")
    for _ in range(RUNS):
        begin = time.thread_time_ns()
        work()
        best = min(best, time.thread_time_ns() - begin)
    return best / 1000 / messages


def send_header(queue: int, batch: bool, topic: str = TOPIC) -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2(
        producer_group="stages",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue,
        sys_flag=0,
        born_timestamp=int(time.time() * 1000),
        flag=0,
        properties=PROPERTIES,
        batch=batch,
    )


def frames(code: int, header: Header, body: bytes, count: int, binary: bool) -> bytes:
    return b"".join(
        encode_command(
            code, opaque, header=header, body=body, serialize_type=int(binary), language="JAVA"
        )
        for opaque in range(count)
    )


def check_refusals(answers: bytes) -> None:
    """Raises RuntimeError if one is a success."""
    if any(decode_command(frame).code == ResponseCode.SUCCESS for frame in child_frames(answers)):
        raise RuntimeError("the broker has taken a request that it has to refuse")


def check(answers: bytes) -> None:
    """Raises RuntimeError unless all, and those within them, are successes."""
    for frame in child_frames(answers):
        answer = decode_command(frame)
        if answer.code != ResponseCode.SUCCESS:
            raise RuntimeError(f"the broker answered {answer.code}: {answer.remark}")
        if answer.remark == SUCCESS_REMARK:
            check(bytes(answer.body))


async def main() -> None:
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="pocketmq-stages-") as directory:
        config, _ = load_broker_config(
            f"storePathRootDir={directory}\nlistenPort=0\nbrokerIP1=127.0.0.1\n"
        )
        async with Broker(config) as broker:
            # The sends of a topic that is not on the disk yet are answered later.
            broker.tables.topics.create_if_absent(TOPIC, 4)
            await broker.tables.topics.saved(TOPIC)
            measure(broker)


def measure(broker: Broker) -> None:
    server = RemotingServer(
        broker.dispatcher,
        before_answers=broker.components.unwritten.settle,
        clock=repeat(0.0).__next__,
    )
    connection = ServerConnection(server)
    sink = Sink()
    connection.connection_made(sink)

    def whole(
        name: str, data: bytes, messages: int, check: Callable[[bytes], None] = check
    ) -> None:
        def turn() -> None:
            connection.data_received(data)
            server.flush()

        turn()  # The first read of a kind is not the usual one.
        sink.last.clear()
        figure = least(turn, messages)
        answers = b"".join(sink.last)
        if not answers:
            raise RuntimeError("the broker did not answer")
        check(answers)
        print(f"{name:34}{figure:8.2f}")

    print(f"{'':34}{'µs/message':>10}")
    single = frames(RequestCode.SEND_MESSAGE_V2, send_header(1, False), BODY, PIPELINE, False)
    whole(f"single send, {PIPELINE} in a read", single, PIPELINE)
    stages_of_a_send(broker, connection, single)
    alone = frames(RequestCode.SEND_MESSAGE_V2, send_header(1, False), BODY, 1, False)
    whole("single send, alone in its read", alone, 1)
    whole_crowd(server, alone)
    binary = frames(RequestCode.SEND_MESSAGE_V2, send_header(1, False), BODY, PIPELINE, True)
    whole("single send, binary header", binary, PIPELINE)
    payload = encode_batch((0, BODY, PROPERTIES.encode()) for _ in range(BATCH))
    batch = frames(RequestCode.SEND_BATCH_MESSAGE, send_header(2, True), payload, 4, False)
    whole(f"batch of {BATCH}, 4 in a read", batch, 4 * BATCH)
    parent = frames(
        RequestCode.COMMON_BATCH_REQUEST,
        BatchRequestHeader(dispatch_code=RequestCode.SEND_MESSAGE_V2),
        frames(RequestCode.SEND_MESSAGE_V2, send_header(1, False), BODY, CHILDREN, False),
        3,
        False,
    )
    whole(f"parent of {CHILDREN} sends, 3 in a read", parent, 3 * CHILDREN)
    pull = PullMessageRequestHeader(
        consumer_group="stages", topic=TOPIC, queue_id=2, queue_offset=0, max_msg_nums=BATCH,
        sys_flag=4, commit_offset=0, suspend_timeout_millis=0, sub_version=0, subscription="*",
    )  # fmt: skip
    whole(f"pull of {BATCH}", frames(RequestCode.PULL_MESSAGE, pull, b"", 1, False), BATCH)
    for name, code, header in (
        ("an unknown code", UNKNOWN_CODE, send_header(1, False)),
        ("a queue that is not there", RequestCode.SEND_MESSAGE_V2, send_header(9_999, False)),
        (
            "a topic with a wrong name",
            RequestCode.SEND_MESSAGE_V2,
            send_header(1, False, f"{TOPIC}."),
        ),
    ):
        data = frames(code, header, BODY, PIPELINE, False)
        whole(f"refused: {name}", data, PIPELINE, check_refusals)


def whole_crowd(server: RemotingServer, data: bytes) -> None:
    """The same, from many connections in one turn of the event loop."""
    connections = [ServerConnection(server) for _ in range(PIPELINE)]
    sinks = [Sink() for _ in connections]
    for connection, sink in zip(connections, sinks, strict=True):
        connection.connection_made(sink)

    def turn() -> None:
        for connection in connections:
            connection.data_received(data)
        server.flush()

    turn()
    figure = least(turn, PIPELINE)
    for sink in sinks:
        check(b"".join(sink.last))
    print(f"{f'single send, each of {PIPELINE} clients':34}{figure:8.2f}")


def stages_of_a_send(broker: Broker, connection: ServerConnection, data: bytes) -> None:
    def stage(name: str, work: Callable[[], object]) -> None:
        print(f"  {name:32}{least(work, PIPELINE):8.2f}")

    splitter = FrameSplitter()
    decoder = RequestDecoder(broker.dispatcher.header_types)
    split = list(splitter.feed(data))
    requests = [decoder.decode(frame) for frame in (split[0], *split)][1:]
    for request in requests:
        request.connection = connection
        request.channel = connection
    dispatch, put = broker.dispatcher.dispatch, broker.store.put

    def store() -> None:
        for _ in range(PIPELINE):
            put(
                TOPIC, 1, BODY, PROPERTIES, flag=0, sys_flag=0, born_timestamp=1,
                born_host=connection.peer_packed, reconsume_times=0, tags_code=1,
            )  # fmt: skip

    stage("split into frames", lambda: list(splitter.feed(data)))
    stage("decode the header", lambda: [decoder.decode(frame) for frame in split])
    stage("processor", lambda: [dispatch(request) for request in requests])
    stage("  of it the store", store)


if __name__ == "__main__":
    asyncio.run(main())
