from __future__ import annotations

import contextlib
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pocketmq.remoting.codes import VERSION, LanguageCode
from pocketmq.remoting.errors import EncodeError, FrameError, HeaderError
from pocketmq.remoting.frames.command import Command
from pocketmq.remoting.frames.frame import (
    MAX_REMARK,
    SerializeType,
    cut_response,
    decode_command,
    encode_command,
    encode_request,
    encode_response_frame,
    join_response,
)
from pocketmq.remoting.headers import (
    GetRouteInfoRequestHeader,
    Header,
    PullMessageResponseHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)

I32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
NONEMPTY = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
EXT = st.dictionaries(NONEMPTY, NONEMPTY, max_size=20)


def json_frame(text: str | bytes, body: bytes = b"") -> bytes:
    head = text.encode() if isinstance(text, str) else text
    return struct.pack(">I", len(head)) + head + body


def binary_frame(head: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">I", 1 << 24 | len(head)) + head + body


class TestRoundTrip:
    @given(
        code=I32,
        opaque=I32,
        flag=st.integers(0, 3),
        ext=st.dictionaries(TEXT, TEXT, max_size=20),
        body=st.binary(max_size=100),
        remark=st.none() | TEXT,
        language=st.sampled_from([code.name for code in LanguageCode]),
        version=st.integers(0, 1000),
    )
    @example(
        code=1,
        opaque=2,
        flag=0,
        ext={},
        body=b"",
        remark='\x01\x02"\\ 标签 😀',
        language="JAVA",
        version=0,
    )
    def test_json(
        self, code: int, opaque: int, body: bytes, ext: dict[str, str], **rest: Any
    ) -> None:
        frame = encode_command(code, opaque, ext_fields=ext, body=body, **rest)
        assert struct.unpack(">I", frame[:4])[0] == len(frame) - 4
        command = decode_command(frame[4:])
        assert command == Command(
            code=code,
            opaque=opaque,
            ext_fields=ext,
            body=body,
            serialize_type=SerializeType.JSON,
            **rest,
        )

    @given(
        code=st.integers(-32768, 32767),
        opaque=I32,
        flag=st.integers(0, 3),
        ext=EXT,
        body=st.binary(max_size=100),
        remark=st.none() | NONEMPTY,
        language=st.sampled_from([code.name for code in LanguageCode]),
        version=st.integers(0, 1000),
    )
    def test_binary(
        self, code: int, opaque: int, body: bytes, ext: dict[str, str], **rest: Any
    ) -> None:
        frame = encode_command(code, opaque, ext_fields=ext, body=body, serialize_type=1, **rest)
        assert struct.unpack(">I", frame[:4])[0] == len(frame) - 4
        command = decode_command(memoryview(frame)[4:])
        assert command == Command(
            code=code,
            opaque=opaque,
            ext_fields=ext,
            body=body,
            serialize_type=SerializeType.ROCKETMQ,
            **rest,
        )


class TestBinary:
    EXAMPLE = (
        "00000026 01000022 0069 00 01df 00000001 00000000 00000001 72"
        "0000000c 0005 746f706963 00000001 54"
    )

    def test_the_example_of_a_java_peer(self) -> None:
        frame = bytes.fromhex(self.EXAMPLE)
        assert decode_command(frame[4:]) == Command(
            code=105,
            opaque=1,
            version=479,
            remark="r",
            ext_fields={"topic": "T"},
            serialize_type=SerializeType.ROCKETMQ,
        )
        header = GetRouteInfoRequestHeader(topic="T")
        assert frame == encode_command(
            105, 1, header=header, remark="r", serialize_type=1, language="JAVA", version=479
        )

    def test_an_empty_value_reads_as_absent(self) -> None:
        frame = encode_command(1, 1, ext_fields={"a": "", "b": "x"}, remark="", serialize_type=1)
        command = decode_command(frame[4:])
        assert command.ext_fields == {"b": "x"}
        assert command.remark is None

    def test_an_unknown_language_is_none(self) -> None:
        frame = bytearray(encode_command(1, 1, serialize_type=1))
        frame[10] = 200
        assert decode_command(bytes(frame[4:])).language == ""

    def test_an_unknown_language_is_written_as_other(self) -> None:
        frame = encode_command(1, 1, serialize_type=1, language="COBOL")
        assert decode_command(frame[4:]).language == "OTHER"

    def test_codes_above_32767_do_not_fit(self) -> None:
        with pytest.raises(EncodeError, match="200050"):
            encode_command(200050, 1, serialize_type=1)
        assert decode_command(encode_command(32767, 1, serialize_type=1)[4:]).code == 32767

    def test_a_name_over_32767_bytes_does_not_fit(self) -> None:
        with pytest.raises(EncodeError):
            encode_command(1, 1, ext_fields={"x" * 32768: "v"}, serialize_type=1)

    @pytest.mark.parametrize(
        ("at", "value"),
        [
            (13, -1),  # remark length
            (13, 5),
            (17, -1),  # ext length
            (17, 100),
            (17, 5),  # cuts the entry
            (24, -1),  # value length
            (24, 2),
        ],
    )
    def test_lengths_that_do_not_fit(self, at: int, value: int) -> None:
        head = bytearray(encode_command(1, 77, ext_fields={"k": "v"}, serialize_type=1)[8:])
        struct.pack_into(">i", head, at, value)
        with pytest.raises(HeaderError) as error:
            decode_command(binary_frame(bytes(head)))
        assert (error.value.opaque, error.value.serialize_type) == (77, 1)

    @pytest.mark.parametrize(("size", "opaque"), [(0, None), (8, None), (9, 77), (20, 77)])
    def test_a_header_cut_short(self, size: int, opaque: int | None) -> None:
        head = encode_command(1, 77, flag=2, serialize_type=1)[8:]
        with pytest.raises(HeaderError) as error:
            decode_command(binary_frame(head[:size]))
        assert error.value.opaque == opaque
        assert error.value.flag == (2 if size >= 13 else 0)

    def test_text_that_is_no_utf8(self) -> None:
        head = encode_command(1, 77, ext_fields={"k": "v"}, serialize_type=1)[8:]
        with pytest.raises(HeaderError):
            decode_command(binary_frame(head[:-1] + b"\xff"))


class TestJson:
    def test_a_request_of_the_java_client(self) -> None:
        head = (
            '{"code":310,"extFields":{"a":"PG","b":"T"},"flag":0,"language":"JAVA","opaque":7,'
            '"serializeTypeCurrentRPC":"JSON","version":479}'
        )
        assert decode_command(json_frame(head, b"body")) == Command(
            code=310,
            opaque=7,
            version=479,
            ext_fields={"a": "PG", "b": "T"},
            body=b"body",
        )
        frame = encode_command(
            310, 7, ext_fields={"a": "PG", "b": "T"}, language="JAVA", version=479, body=b"body"
        )
        assert frame[4:] == json_frame(head, b"body")

    def test_missing_keys_have_defaults(self) -> None:
        assert decode_command(json_frame('{"code":105}')) == Command(
            code=105, opaque=0, flag=0, version=0, language="JAVA", remark=None, ext_fields={}
        )

    def test_bare_values_become_the_words_of_the_wire(self) -> None:
        head = (
            '{"code":1,"extFields":{"n":5,"t":true,"f":false,"d":1.5,"x":null,"s":"v"},'
            '"language":"KLINGON","opaque":3,"remark":12,"unknown":[{}],"version":"479"}'
        )
        command = decode_command(json_frame(head))
        assert command.ext_fields == {"n": "5", "t": "true", "f": "false", "d": "1.5", "s": "v"}
        assert (command.language, command.remark, command.version) == ("KLINGON", "12", 479)

    @pytest.mark.parametrize("language", ["null", "3", "99", "[]"])
    def test_any_language(self, language: str) -> None:
        command = decode_command(json_frame('{"code":1,"language":' + language + "}"))
        assert command.language == ("PYTHON" if language == "3" else "JAVA")

    @pytest.mark.parametrize(
        "head",
        [
            "{'code':7,'opaque':3,'extFields':{'a':'b'}}",
            "{code:7,opaque:3,extFields:{a:'b'}}",
            '\ufeff{"code":7,"opaque":3,"extFields":{"a":"b"}}',
            '{"code":7,"opaque":3,"extFields":{"a":"b",},}',
            '{"code":7,"opaque":3,"extFields":{"a":"b"}}\n\0',
            '/* */{"code":"+7","opaque":"03","extFields":{"a":"b"}}',
            '{"Code":7,"OPAQUE":3,"ExtFields":{"a":"b"}}',
            '{"code":7,"opaque":3,"ext_fields":{"a":"b"}}',
        ],
    )
    def test_headers_as_only_fastjson_reads_them(self, head: str) -> None:
        command = decode_command(json_frame(head))
        assert (command.code, command.opaque, command.ext_fields) == (7, 3, {"a": "b"})

    def test_long_headers_have_to_be_json(self) -> None:
        head = "{'code':7,'opaque':3,'remark':'%s'}" % ("x" * (64 << 10))
        with pytest.raises(HeaderError):
            decode_command(json_frame(head))
        assert decode_command(json_frame(head.replace("'", '"'))).opaque == 3

    def test_null_extfields_are_none(self) -> None:
        assert decode_command(json_frame('{"code":1,"extFields":null}')).ext_fields == {}

    def test_keys_that_are_ours_alone_mean_nothing(self) -> None:
        command = decode_command(json_frame('{"code":1,"body":"aGk=","serialize_type":1}', b"b"))
        assert (command.body, command.serialize_type) == (b"b", SerializeType.JSON)

    @pytest.mark.parametrize(
        ("head", "opaque", "flag"),
        [
            ("", None, 0),
            ("[]", None, 0),
            ("{", None, 0),
            ('{"opaque":12,"flag":2}', 12, 2),
            ('{"code":1,"opaque": 12,"flag": 1,"extFields":{"a":"b}}', 12, 1),
            ('{"code":1,"opaque":-5,"extFields":[]}', -5, 0),
            ('{"code":1,"opaque":99999999999}', None, 0),
            ('{"code":1,"opaque":4294967295}', None, 0),
            ('{"code":"x","opaque":1}', 1, 0),
            ('{"code":2147483648,"opaque":1}', 1, 0),
            ('{"code":true,"opaque":1}', 1, 0),
            ('{"code":1,"opaque":1,"x":' + "[" * 100_000, 1, 0),
            ('{"code":1,"opaque":1,"version":' + "9" * 100_000 + "}", 1, 0),
        ],
    )
    def test_a_broken_header(self, head: str, opaque: int | None, flag: int) -> None:
        with pytest.raises(HeaderError) as error:
            decode_command(json_frame(head))
        assert (error.value.opaque, error.value.flag) == (opaque, flag)
        assert error.value.serialize_type == SerializeType.JSON

    def test_utf8_that_is_none(self) -> None:
        with pytest.raises(HeaderError):
            decode_command(json_frame(b'{"code":1,"remark":"\xff"}'))


class TestRequests:
    SEND = SendMessageRequestHeaderV2(
        producer_group='group "', topic="标", default_topic="TBW102", default_topic_queue_nums=4,
        queue_id=0, sys_flag=0, born_timestamp=1, flag=0, properties="KEYS\x01k\x02", batch=True,
    )  # fmt: skip

    @pytest.mark.parametrize("kind", [0, 1])
    @pytest.mark.parametrize("language", ["PYTHON", "JAVA"])
    @pytest.mark.parametrize(
        "header",
        [
            SEND,
            msgspec.structs.replace(SEND, bname="b0"),
            msgspec.structs.replace(SEND, max_reconsume_times=3, unit_mode=True),
            GetRouteInfoRequestHeader(topic="T"),
            Header(),
        ],
    )
    def test_templates_write_what_the_fields_say(
        self, kind: int, language: str, header: Header
    ) -> None:
        frame = encode_command(
            310, 5, flag=2, header=header, body=b"b", serialize_type=kind, language=language
        )
        assert decode_command(frame[4:]) == Command(
            code=310,
            opaque=5,
            flag=2,
            language=language,
            version=VERSION,
            ext_fields=header.to_ext(),
            body=b"b",
            serialize_type=SerializeType(kind),
        )

    @pytest.mark.parametrize("ext_fields", [None, {}, {"Signature": "s"}])
    @pytest.mark.parametrize("header", [None, SEND, GetRouteInfoRequestHeader(topic="T"), Header()])
    def test_requests_of_ours(
        self, header: Header | None, ext_fields: dict[str, str] | None
    ) -> None:
        fields = header.to_ext() if header else {}
        frame = encode_request(310, 5, header, b"b", 2, ext_fields)
        assert decode_command(frame[4:]) == Command(
            code=310,
            opaque=5,
            flag=2,
            language="PYTHON",
            version=VERSION,
            ext_fields=fields | (ext_fields or {}),
            body=b"b",
        )
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4

    def test_a_request_over_16_mib_of_header_can_not_be_written(self) -> None:
        with pytest.raises(EncodeError, match="16777215 fit"):
            encode_request(105, 1, GetRouteInfoRequestHeader(topic="T" * (1 << 24)), b"")


class TestFrameErrors:
    @pytest.mark.parametrize("frame", [b"", b"\0\0\0"])
    def test_no_room_for_the_header_length(self, frame: bytes) -> None:
        with pytest.raises(FrameError):
            decode_command(frame)

    def test_header_longer_than_its_frame(self) -> None:
        with pytest.raises(FrameError, match="header of 5 bytes"):
            decode_command(struct.pack(">I", 5) + b"{}")

    @pytest.mark.parametrize("kind", [2, 127, 255])
    def test_unknown_serialize_type(self, kind: int) -> None:
        with pytest.raises(FrameError, match=str(kind)):
            decode_command(struct.pack(">I", kind << 24 | 2) + b"{}")

    def test_a_header_over_16_mib_can_not_be_written(self) -> None:
        with pytest.raises(EncodeError):
            encode_command(1, 1, remark="x" * 0x1000000)
        with pytest.raises(EncodeError):
            encode_response_frame(0, 1, ext_fields={"field": "x" * 0x1000000})

    @pytest.mark.parametrize("serialize_type", [0, 1])
    def test_a_long_remark_is_cut(self, serialize_type: int) -> None:
        frame = encode_response_frame(serialize_type, 1, 1, "x" * 0x1000000)
        assert decode_command(memoryview(frame)[4:]).remark == "x" * MAX_REMARK + "..."

    @given(st.binary(max_size=200), st.booleans())
    def test_noise_gives_a_command_or_one_of_the_two_errors(self, noise: bytes, fit: bool) -> None:
        frame = (
            struct.pack(">I", (noise[0] & 1) << 24 | len(noise) - 1) + noise[1:]
            if (fit and noise)
            else noise
        )
        try:
            command = decode_command(frame)
        except (FrameError, HeaderError):
            return
        assert isinstance(command.code, int)

    @given(st.data())
    def test_damaged_headers_too(self, data: st.DataObject) -> None:
        kind = data.draw(st.sampled_from([0, 1]))
        whole = encode_command(
            310, 5, ext_fields={"a": "group", "b": "topic"}, remark="r", serialize_type=kind
        )
        frame = bytearray(whole[4:])
        for _ in range(data.draw(st.integers(1, 4))):
            frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
        with contextlib.suppress(FrameError, HeaderError):
            decode_command(bytes(frame))


class TestResponses:
    STORED = SendMessageResponseHeader(
        msg_id="7F00000100005597" + "0" * 16,
        queue_id=3,
        queue_offset=12345,
        transaction_id="7F00000100002A139A5533B2A0000001",
    )

    @pytest.mark.parametrize("kind", [0, 1])
    @pytest.mark.parametrize(
        "header",
        [
            STORED,
            msgspec.structs.replace(STORED, transaction_id='chosen "\x01\\ 标签'),
            msgspec.structs.replace(STORED, transaction_id=None),
            msgspec.structs.replace(STORED, transaction_id=""),
            msgspec.structs.replace(STORED, trace_on=False, region="elsewhere"),
            msgspec.structs.replace(STORED, trace_on=False),
            msgspec.structs.replace(STORED, batch_uniq_id="B"),
            msgspec.structs.replace(STORED, recall_handle="aGFuZGxl"),
            msgspec.structs.replace(STORED, queue_id=None),
            SendMessageResponseHeader(),
            PullMessageResponseHeader(
                suggest_which_broker_id=0,
                next_begin_offset=2**40,
                min_offset=0,
                max_offset=2**62,
                topic_sys_flag=0,
                group_sys_flag=1,
            ),
            PullMessageResponseHeader(forbidden_type=3),
            Header(),
        ],
    )
    def test_templates_write_what_the_fields_say(self, kind: int, header: Header) -> None:
        head = encode_response_frame(kind, -7, 10, None, header, 4)
        assert struct.unpack(">I", head[:4])[0] == len(head)
        command = decode_command(head[4:] + b"body")
        assert command == Command(
            code=10,
            opaque=-7,
            flag=1,
            language="PYTHON",
            version=VERSION,
            ext_fields={k: v for k, v in header.to_ext().items() if v or kind == 0},
            body=b"body",
            serialize_type=SerializeType(kind),
        )

    @pytest.mark.parametrize("kind", [0, 1])
    def test_header_remark_and_extfields_together(self, kind: int) -> None:
        head = encode_response_frame(kind, 9, 17, "no \x02 way", self.STORED, 0, {"extra": "1"})
        command = decode_command(head[4:])
        assert command.ext_fields == self.STORED.to_ext() | {"extra": "1"}
        assert (command.code, command.remark, command.is_response) == (17, "no \x02 way", True)

    @pytest.mark.parametrize("kind", [0, 1])
    def test_extfields_alone_and_nothing_at_all(self, kind: int) -> None:
        only = decode_command(encode_response_frame(kind, 1, 0, None, None, 0, {"k": "v"})[4:])
        assert only.ext_fields == {"k": "v"}
        bare = decode_command(encode_response_frame(kind, 1)[4:])
        assert (bare.code, bare.ext_fields, bare.remark) == (0, {}, None)

    def test_an_empty_header_still_writes_the_map(self) -> None:
        assert b'"extFields":{}' in encode_response_frame(0, 1, 29, "r", Header())
        assert b"extFields" not in encode_response_frame(0, 1, 29, "r")

    @given(
        kind=st.integers(0, 1),
        opaque=I32,
        first=I32,
        remark=st.none() | TEXT | st.just('"opaque":0,'),
        header=st.sampled_from([None, STORED, Header()]),
    )
    def test_a_cut_response_is_joined_as_it_would_be_written(
        self, kind: int, opaque: int, first: int, remark: str | None, header: Header | None
    ) -> None:
        before, after = cut_response(kind, 29, remark, header)
        for each in (first, opaque):
            written = encode_response_frame(kind, each, 29, remark, header)
            assert join_response(kind, before, each, after) == written

    def test_half_a_surrogate_pair_in_a_remark_does_not_stop_the_answer(self) -> None:
        for kind in (0, 1):
            command = decode_command(encode_response_frame(kind, 1, 1, "bad \ud800 text")[4:])
            assert command.remark == "bad ? text"

    def test_a_value_that_is_no_text_is_an_encode_error(self) -> None:
        for kind in (0, 1):
            with pytest.raises(EncodeError):
                encode_command(1, 1, ext_fields={"k": "\ud800"}, serialize_type=kind)
