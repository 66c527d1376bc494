from __future__ import annotations

from enum import Enum
from typing import Annotated, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.remoting.settings.official_config_keys import BROKER_KEYS, NAMESRV_KEYS
from pocketmq.remoting.settings.properties_file import (
    MAX_LINE,
    ConfigError,
    ConfigErrors,
    Settings,
    amend_properties,
    config_properties,
    format_properties,
    load_config,
    parse_properties,
    read_property,
)


class FlushDiskType(Enum):
    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class Config(msgspec.Struct, rename="camel", kw_only=True):
    broker_name: str = "b"
    listen_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 10911
    max_message_size: Annotated[int, msgspec.Meta(ge=1)] = 4194304
    trace_on: bool = True
    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    ratio: float = 0.75
    delete_when: Annotated[str, msgspec.Meta(pattern=r"^\d\d$")] = "04"
    broker_role: Literal["ASYNC_MASTER", "SLAVE"] = "ASYNC_MASTER"
    broker_ip1: str | None = msgspec.field(name="brokerIP1", default=None)
    limit: int | None = None


KNOWN = frozenset({"haListenPort", "brokerPermission"})


class TestText:
    def test_the_forms_java_reads(self) -> None:
        text = (
            "# comment\n! comment\n\n  a=1\n b : 2\nc 3\nd\te=f\r\ng=\\\n   continued \\\n  twice\n"
            "h\\=\\:\\ i = x\\ty\\u6807\\\\z\nj=# no comment\nk=\nl\nm=1\nm=2\nn=trailing  \n"
            "o=\\ud83d\\ude00\np=odd\\"
        )
        assert parse_properties(text) == {
            "a": "1",
            "b": "2",
            "c": "3",
            "d": "e=f",
            "g": "continued twice",
            "h=: i": "x\ty标\\z",
            "j": "# no comment",
            "k": "",
            "l": "",
            "m": "2",
            "n": "trailing  ",
            "o": "😀",
            "p": "odd",
        }

    def test_a_broker_conf(self) -> None:
        text = (
            "brokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0\n"
            "deleteWhen = 04\nfileReservedTime = 48\nbrokerRole = ASYNC_MASTER\n"
            "flushDiskType = ASYNC_FLUSH\n"
        )
        properties = parse_properties(text)
        assert properties["brokerName"] == "broker-a"
        assert len(properties) == 7

    def test_lines_are_sorted(self) -> None:
        assert format_properties({"b": "2", "a": "x=y #z"}) == "a=x=y #z\nb=2\n"

    @given(
        st.dictionaries(
            st.text(st.characters(codec="utf-8"), max_size=8),
            st.text(st.characters(codec="utf-8"), max_size=8),
        )
    )
    def test_round_trip_in_ascii(self, properties: dict[str, str]) -> None:
        text = format_properties(properties)
        assert text.isascii()
        assert parse_properties(text) == properties

    @given(st.text())
    def test_any_text_is_properties(self, text: str) -> None:
        assert all(isinstance(value, str) for value in parse_properties(text).values())


class TestLoad:
    def test_types(self) -> None:
        config, warnings = load_config(
            Config,
            "brokerName = b0 \nlistenPort=0\ntraceOn=FALSE\nflushDiskType=SYNC_FLUSH\nratio=0.5\n"
            "brokerRole=SLAVE\nbrokerIP1=10.0.0.1\nlimit=3\ndeleteWhen=05",
        )
        assert not warnings
        assert config == Config(
            broker_name="b0",
            listen_port=0,
            trace_on=False,
            flush_disk_type=FlushDiskType.SYNC_FLUSH,
            ratio=0.5,
            broker_role="SLAVE",
            broker_ip1="10.0.0.1",
            limit=3,
            delete_when="05",
        )

    def test_nothing_is_the_defaults(self) -> None:
        assert load_config(Config, "") == (Config(), [])

    @pytest.mark.parametrize(
        ("key", "value", "allowed"),
        [
            ("listenPort", "x", "a whole number from 0 to 65535"),
            ("listenPort", "65536", "a whole number from 0 to 65535"),
            ("listenPort", "", "a whole number from 0 to 65535"),
            ("maxMessageSize", "0", "a whole number of at least 1"),
            ("traceOn", "1", "true or false"),
            ("traceOn", "yes", "true or false"),
            ("flushDiskType", "sync", "ASYNC_FLUSH or SYNC_FLUSH"),
            ("ratio", "much", "a number"),
            ("deleteWhen", "noon", r"a text that matches ^\d\d$"),
            ("brokerRole", "KING", "ASYNC_MASTER or SLAVE"),
            ("limit", "many", "a whole number or nothing"),
        ],
    )
    def test_a_bad_value_names_key_value_and_what_is_allowed(
        self, key: str, value: str, allowed: str
    ) -> None:
        with pytest.raises(ConfigError) as error:
            load_config(Config, f"{key} = {value}")
        assert (error.value.key, error.value.value, error.value.allowed) == (key, value, allowed)
        assert str(error.value) == f"{key} = {value!r}: must be {allowed}"

    def test_all_errors_are_found_each_with_its_place(self) -> None:
        text = "# ours\nlistenPort=x\n\nbrokerNme=b\ntraceOn=\\\n  maybe\nbrokerName=a\n"
        with pytest.raises(ConfigErrors) as caught:
            load_config(
                Config,
                Settings.of_text(text, "conf/broker.conf"),
                Settings.of_options([("limit", "many"), ("haListenPort", "1")], "--set"),
                known=KNOWN,
            )
        assert str(caught.value).splitlines() == [
            "conf/broker.conf:2: listenPort = 'x': must be a whole number from 0 to 65535",
            "conf/broker.conf:5: traceOn = 'maybe': must be true or false",
            "--set: limit = 'many': must be a whole number or nothing",
        ]
        assert [error.where for error in caught.value.errors] == [
            "conf/broker.conf:2",
            "conf/broker.conf:5",
            "--set",
        ]
        assert caught.value.warnings == (
            "conf/broker.conf:4: brokerNme: unknown property, did you mean brokerName?",
            "--set: haListenPort: a property of RocketMQ that has no effect here",
        )

    def test_a_later_source_wins_and_only_the_winner_is_checked(self) -> None:
        config, warnings = load_config(
            Config, "listenPort=x\nlistenPort=1\nlimit=y", Settings.of_options([("limit", "3")])
        )
        assert (config.listen_port, config.limit, warnings) == (1, 3, [])

    def test_a_line_that_is_too_long_is_an_error_of_that_line_only(self) -> None:
        text = f"brokerName=a\nlong={'x' * MAX_LINE}\nlistenPort=x\nmax=1"
        with pytest.raises(ConfigErrors) as caught:
            load_config(Config, Settings.of_text(text, "f"))
        long, port = map(str, caught.value.errors)
        assert long.startswith("f:2: the line has 65541 characters, at most 65536 are allowed")
        assert len(long) < 200
        assert port.startswith("f:3: listenPort")
        assert caught.value.warnings[0].startswith("f:4: max: unknown property")

    def test_checks_see_values_that_have_no_field(self) -> None:
        def check(value: str) -> str | None:
            return None if value == "1" else f"haListenPort {value!r} is taken"

        load_config(Config, "haListenPort = 1 ", known=KNOWN, checks={"haListenPort": check})
        with pytest.raises(ConfigErrors, match=r"^haListenPort '2' is taken$"):
            load_config(Config, "haListenPort=2", known=KNOWN, checks={"haListenPort": check})

    def test_keys_without_effect_are_named(self) -> None:
        _, warnings = load_config(
            Config, "haListenPort=1\nlistenport=1\nbrokerPermisson=6\nzzz=1", known=KNOWN
        )
        assert warnings == [
            "haListenPort: a property of RocketMQ that has no effect here",
            "listenport: unknown property, did you mean listenPort?",
            "brokerPermisson: unknown property, did you mean brokerPermission?",
            "zzz: unknown property",
        ]

    def test_one_property(self) -> None:
        assert read_property(Config, "listenPort", "80") == 80
        with pytest.raises(ConfigError):
            read_property(Config, "listenPort", "-1")
        with pytest.raises(KeyError):
            read_property(Config, "haListenPort", "1")

    def test_a_configuration_written_and_read(self) -> None:
        config = Config(broker_name="标 #1", flush_disk_type=FlushDiskType.SYNC_FLUSH, limit=2)
        properties = config_properties(config)
        assert properties["traceOn"] == "true"
        assert "brokerIP1" not in properties
        assert load_config(Config, format_properties(properties)) == (config, [])


class TestAmending:
    def test_only_the_named_lines_change(self) -> None:
        text = "# mine\nlistenPort=1\n\n  brokerName = b\n#traceOn=true\nlistenPort=2"
        assert amend_properties(text, {"listenPort": "3", "traceOn": "false"}) == (
            "# mine\nlistenPort=3\n\n  brokerName = b\n#traceOn=true\ntraceOn=false\n"
        )

    def test_values_over_several_lines(self) -> None:
        amended = amend_properties("a=1\\\n  2\nb=x\\\n  a=5\n", {"a": "3"})
        assert parse_properties(amended) == {"a": "3", "b": "xa=5"}

    @given(
        st.text(alphabet="ab=:#\\ \n\t\x0b\u6807", max_size=40),
        st.dictionaries(st.text(alphabet="ab \u6807", min_size=1), st.text(max_size=8)),
    )
    def test_the_meaning(self, text: str, changes: dict[str, str]) -> None:
        assert parse_properties(amend_properties(text, changes)) == parse_properties(text) | changes


def test_the_reference_knows_these_keys() -> None:
    broker = {"namesrvAddr", "brokerIP1", "flushDiskType", "listenPort", "dLegerSelfId", "useTLS"}
    assert broker <= BROKER_KEYS
    assert {"kvConfigPath", "orderMessageEnable", "listenPort"} <= NAMESRV_KEYS
    assert "kvConfigPath" not in BROKER_KEYS
    assert "flushDiskType" not in NAMESRV_KEYS


def test_a_comment_after_a_value_is_pointed_out() -> None:
    text = "brokerName=a # the first\nlistenPort=1 # any\ndeleteWhen=04\n"
    with pytest.raises(ConfigErrors) as caught:
        load_config(Config, Settings.of_text(text, "f"))
    assert str(caught.value) == (
        "f:2: listenPort = '1 # any': must be a whole number from 0 to 65535; "
        "a comment needs a line of its own"
    )
    assert caught.value.warnings == (
        "f:1: brokerName: what follows # is part of the value; a comment needs a line of its own",
    )
