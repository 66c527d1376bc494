from __future__ import annotations

import struct
from collections.abc import Set
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq.remoting.errors import FrameError, HeaderError
from pocketmq.remoting.frames.frame import SerializeType, decode_command, encode_command
from pocketmq.remoting.headers import (
    Header,
    PullMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    UpdateConsumerOffsetRequestHeader,
)
from pocketmq.remoting.serving.request import Request, RequestDecoder, Response

HEADER_TYPES: dict[int, type[Header] | None] = {
    10: SendMessageRequestHeader,
    11: PullMessageRequestHeader,
    15: UpdateConsumerOffsetRequestHeader,
    34: None,
    310: SendMessageRequestHeaderV2,
    200050: PullMessageRequestHeader,
}
SEND = SendMessageRequestHeaderV2(
    producer_group="please_rename_unique_group_name",
    topic="TopicTest",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=3,
    sys_flag=0,
    born_timestamp=1_700_000_000_123,
    flag=0,
    properties="KEYS\x01k1\x02TAGS\x01标签\x02",
    bname="broker-a",
)
JAVA_HEAD = (
    '{"code":310,"extFields":{"a":"PG","b":"T","c":"TBW102","d":"4","e":"3","f":"0",'
    '"g":"1700000000123","h":"0","i":"KEYS\\u0001k1\\u0002","j":"0","k":"false","m":"true",'
    '"n":"b0"},"flag":0,"language":"JAVA","opaque":12345,"serializeTypeCurrentRPC":"JSON",'
    '"version":479}'
)


@pytest.fixture
def decoder() -> RequestDecoder:
    return RequestDecoder(HEADER_TYPES)


def json_frame(text: str, body: bytes = b"") -> bytes:
    head = text.encode()
    return struct.pack(">I", len(head)) + head + body


def frame_of(header: Header, kind: int, body: bytes = b"body", code: int = 310) -> bytes:
    return encode_command(code, 77, header=header, body=body, serialize_type=kind)[4:]


def often(decoder: RequestDecoder, frame: bytes | memoryview) -> list[Request[Any]]:
    """The frame decoded so often that all quick paths have been learned."""
    return [decoder.decode(frame) for _ in range(20)]


def test_a_send_of_the_java_client(decoder: RequestDecoder) -> None:
    for request in often(decoder, json_frame(JAVA_HEAD, b"body")):
        assert (request.code, request.opaque, request.flag) == (310, 12345, 0)
        assert (request.language, request.version) == ("JAVA", 479)
        assert request.header == SendMessageRequestHeaderV2(
            producer_group="PG",
            topic="T",
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=3,
            sys_flag=0,
            born_timestamp=1_700_000_000_123,
            flag=0,
            properties="KEYS\x01k1\x02",
            batch=True,
            bname="b0",
        )
        assert request.body == b"body"
        assert request.serialize_type is SerializeType.JSON
        assert request.ext_fields["i"] == "KEYS\x01k1\x02"


def test_a_send_of_the_go_client(decoder: RequestDecoder) -> None:
    head = (
        '{"code":10,"language":"GO","version":317,"opaque":1,"flag":0,"remark":"","extFields":'
        '{"producerGroup":"PG","topic":"T","defaultTopic":"TBW102","defaultTopicQueueNums":"4",'
        '"queueId":"0","sysFlag":"0","bornTimestamp":"1","flag":"0","properties":"",'
        '"reconsumeTimes":"0","unitMode":"false","maxReconsumeTimes":"0","batch":"false"}}'
    )
    for request in often(decoder, json_frame(head)):
        assert isinstance(request.header, SendMessageRequestHeader)
        assert (request.header.max_reconsume_times, request.language) == (0, "GO")
        assert not request.body


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("view", [bytes, memoryview, lambda f: memoryview(bytearray(f))])
def test_quick_and_tolerant_paths_agree(decoder: RequestDecoder, kind: int, view: Any) -> None:
    frame = view(frame_of(SEND, kind))
    first, *later = often(decoder, frame)
    assert first.header == SEND
    for request in later:
        assert request == first
        assert request.ext_fields == SEND.to_ext()


@pytest.mark.parametrize("kind", [0, 1])
def test_an_empty_body_is_false(decoder: RequestDecoder, kind: int) -> None:
    assert not any(request.body for request in often(decoder, frame_of(SEND, kind, b"")))


@pytest.mark.parametrize("kind", [0, 1])
def test_a_code_without_header_type(decoder: RequestDecoder, kind: int) -> None:
    frame = encode_command(34, 5, ext_fields={"AccessKey": "x"}, serialize_type=kind)[4:]
    for request in often(decoder, frame):
        assert type(request.header) is Header
        assert request.ext_fields == {"AccessKey": "x"}


@pytest.mark.parametrize("kind", [0, 1])
def test_an_unknown_code(decoder: RequestDecoder, kind: int) -> None:
    for code in (999, 9_999):
        frame = encode_command(
            code, 5, ext_fields={"a": "b"}, remark="r", body=b"body", serialize_type=kind
        )[4:]
        for request in often(decoder, frame):
            assert (request.code, type(request.header), request.opaque) == (code, Header, 5)
            assert (request.ext_fields, request.remark) == ({"a": "b"}, "r")
            assert (request.body, int(request.serialize_type)) == (b"body", kind)


@pytest.mark.parametrize(
    "head", ['{"code":9999,"extFields":7}', '{"code":9999,', '{"code":%s,"a":1}' % ("9" * 5000)]
)
def test_a_broken_header_of_an_unknown_code(decoder: RequestDecoder, head: str) -> None:
    with pytest.raises(HeaderError):
        decoder.decode(json_frame(head))


def test_a_header_of_an_unknown_code_that_is_longer_than_its_frame(decoder: RequestDecoder) -> None:
    frame = json_frame('{"code":9999,"opaque":1}')
    with pytest.raises(FrameError):
        decoder.decode(frame[:-1])


def test_a_code_of_six_digits(decoder: RequestDecoder) -> None:
    header = PullMessageRequestHeader("g", "t", 0, 0, 1, 0, 0, 0, 0)
    assert often(decoder, frame_of(header, 0, code=200050))[-1].header == header


def test_bare_numbers_and_other_words_in_extfields(decoder: RequestDecoder) -> None:
    head = JAVA_HEAD.replace('"4"', "4").replace('"k":"false"', '"k":False'.lower())
    for request in often(decoder, json_frame(head.replace('"m":"true"', '"m":"yes"'))):
        assert (request.header.default_topic_queue_nums, request.header.batch) == (4, False)


def test_codes_registered_later_are_known(decoder: RequestDecoder) -> None:
    types: dict[int, type[Header] | None] = {}
    decoder = RequestDecoder(types)
    frames = [frame_of(SEND, kind) for kind in (0, 1)]
    assert all(type(r.header) is Header for frame in frames for r in often(decoder, frame))
    types[310] = SendMessageRequestHeaderV2
    assert all(r.header == SEND for frame in frames for r in often(decoder, frame))


@pytest.mark.parametrize("kind", [0, 1])
def test_a_missing_field_tells_the_opaque(decoder: RequestDecoder, kind: int) -> None:
    often(decoder, frame_of(SEND, kind))
    ext = SEND.to_ext()
    del ext["b"]
    frame = encode_command(310, 78, flag=2, ext_fields=ext, serialize_type=kind)[4:]
    with pytest.raises(HeaderError, match=r"SendMessageRequestHeaderV2.*`b`") as error:
        decoder.decode(frame)
    assert (error.value.opaque, error.value.flag) == (78, 2)
    assert error.value.serialize_type == kind


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("number", ["x", "2147483648", "1" * 30])
def test_a_number_that_is_none_or_too_large(
    decoder: RequestDecoder, kind: int, number: str
) -> None:
    frame = encode_command(310, 78, ext_fields=SEND.to_ext() | {"e": number}, serialize_type=kind)
    for _ in range(20):
        with pytest.raises(HeaderError) as error:
            decoder.decode(frame[4:])
        assert error.value.opaque == 78


def test_offset_commits_may_lack_queue_and_offset(decoder: RequestDecoder) -> None:
    frame = encode_command(15, 1, ext_fields={"consumerGroup": "g", "topic": "t"})[4:]
    header = often(decoder, frame)[-1].header
    assert header == UpdateConsumerOffsetRequestHeader(consumer_group="g", topic="t")


def test_responses_are_not_taken_for_requests(decoder: RequestDecoder) -> None:
    for kind in (0, 1):
        frame = encode_command(11, 5, flag=1, serialize_type=kind)[4:]
        assert all(request.flag == 1 for request in often(decoder, frame))


def test_what_a_peer_can_not_set(decoder: RequestDecoder) -> None:
    frame = json_frame('{"code":34,"extFields":{},"connection":{},"channel":"x"}')
    for request in often(decoder, frame):
        assert request.connection is None
        assert request.channel is None
    frame = json_frame('{"code":34,"extFields":{},"head":"x","body":"y"}')
    for request in often(decoder, frame):
        assert request.body == b""
        assert request.head == frame[4:]


@pytest.mark.parametrize("kind", [0, 1])
def test_a_header_longer_than_the_frame(decoder: RequestDecoder, kind: int) -> None:
    frame = frame_of(SEND, kind, b"")
    often(decoder, frame)
    with pytest.raises(FrameError):
        decoder.decode(frame[:-1])
    with pytest.raises(FrameError):
        decoder.decode(frame[:2])


def test_a_header_length_that_swallows_blanks_only(decoder: RequestDecoder) -> None:
    frame = json_frame(JAVA_HEAD)
    often(decoder, frame)
    (length,) = struct.unpack(">I", frame[:4])
    with pytest.raises(FrameError):
        decoder.decode(struct.pack(">I", length + 1) + frame[4:])


def test_unknown_serialize_types(decoder: RequestDecoder) -> None:
    frame = frame_of(SEND, 1)
    often(decoder, frame)
    for kind in (2, 3, 129, 255):
        with pytest.raises(FrameError, match=str(kind)):
            decoder.decode(bytes([kind]) + frame[1:])


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8"), max_size=12),
            st.integers(0, 2**31 - 1),
            st.text(st.characters(codec="utf-8"), max_size=12),
            st.none() | st.integers(0, 20),
            st.booleans(),
            st.binary(max_size=8),
        ),
        min_size=1,
        max_size=40,
    )
)
@settings(max_examples=60, deadline=None)
def test_mixed_binary_headers_are_never_taken_for_one_another(messages: list[Any]) -> None:
    decoder = RequestDecoder(HEADER_TYPES)
    for _ in range(3):
        for topic, queue_id, properties, level, batch, body in messages:
            header = SendMessageRequestHeaderV2(
                producer_group="g%",
                topic=topic,
                default_topic="%b",
                default_topic_queue_nums=4,
                queue_id=queue_id,
                sys_flag=0,
                born_timestamp=1,
                flag=0,
                properties=properties,
                max_reconsume_times=level,
                batch=batch,
            )
            frame = frame_of(header, 1, body)
            if not topic:
                with pytest.raises(HeaderError):
                    decoder.decode(frame)
                continue
            request = decoder.decode(frame)
            assert request.header == header
            assert request.body == body
            assert request.opaque == 77


def test_thousands_of_layouts_keep_decoding(decoder: RequestDecoder) -> None:
    for size in range(1, 10_000, 1):
        header = PullMessageRequestHeader("g" * (size % 500 + 1), "t", size, 0, 1, 0, 0, 0, 0)
        assert decoder.decode(frame_of(header, 1, code=11)).header == header


@given(st.data())
def test_damaged_frames_give_a_request_or_an_error(data: st.DataObject) -> None:
    frames = DAMAGE_FRAMES
    frame = bytearray(data.draw(st.sampled_from(frames)))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        quick = DAMAGE_DECODER.decode(bytes(frame))
    except (FrameError, HeaderError):
        return
    # Whatever the quick paths accept is what the frame says. Only that they skip a field whose
    # name is unknown, where the tolerant path wants all of a header to be text.
    try:
        command = decode_command(bytes(frame))
    except HeaderError:
        with pytest.raises(UnicodeDecodeError):
            frame[4:].decode()
        return
    assert (quick.code, quick.opaque, quick.flag) == (command.code, command.opaque, command.flag)
    assert quick.language == command.language
    assert quick.body == command.body
    header_type = HEADER_TYPES.get(command.code)
    if header_type is not None and not command.flag & 1:
        assert quick.header == header_type.from_ext(command.ext_fields)


DAMAGE_FRAMES = [frame_of(SEND, kind, b"") for kind in (0, 1)]
DAMAGE_DECODER = RequestDecoder(HEADER_TYPES)
for _frame in DAMAGE_FRAMES * 20:
    DAMAGE_DECODER.decode(_frame)


class Recorder:
    def __init__(self) -> None:
        self.answers: list[tuple[Request[Any], Response]] = []

    def respond(self, request: Request[Any], response: Response) -> None:
        self.answers.append((request, response))

    def replace_answers(self, opaques: Set[int], response: Response) -> Set[int]:
        raise NotImplementedError


def test_reply_goes_to_the_channel_unless_oneway(decoder: RequestDecoder) -> None:
    channel = Recorder()
    request = decoder.decode(frame_of(SEND, 0))
    request.channel = channel
    response = Response(remark="later")
    request.reply(response)
    assert channel.answers == [(request, response)]
    request.flag = 2
    assert request.oneway
    request.reply(response)
    assert len(channel.answers) == 1


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    "name", ["connection", "channel", "caller", "observer", "decoded", "head", "body"]
)
def test_a_peer_sets_nothing_that_is_the_servers(name: str, known: bool) -> None:
    decoder = RequestDecoder({41: None} if known else {})
    for value in ('{"a":1}', "[]", "null", "1", '"x"'):
        head = f'{{"code":41,"opaque":1,"{name}":{value},"extFields":{{}}}}'.encode()
        for _ in range(2):  # the second time by what was learnt from the first
            request = decoder.decode(len(head).to_bytes(4) + head + b"text")
            assert request.head == head
            assert request.body == b"text"
            for other in ("connection", "channel", "caller", "observer", "decoded"):
                assert getattr(request, other) is None
