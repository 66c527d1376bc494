"""Broker settings: official files load as they are, and what is wrong is said."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from pocketmq.broker.config import BrokerConfig, load_broker_config
from pocketmq.cli import main
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.remoting.settings.official_config_keys import (
    AUTH_CONFIG,
    BROKER_KEYS,
    NAMESRV_KEYS,
    REFUSED_BY_BROKER,
    REFUSED_BY_NAMESRV,
)
from pocketmq.remoting.settings.properties_file import ConfigError, ConfigErrors
from pocketmq.store.config import FlushDiskType

OFFICIAL = """
# as shipped in conf/2m-noslave/broker-a.properties, and some more
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
deleteWhen=04
fileReservedTime=48
brokerRole=ASYNC_MASTER
flushDiskType=SYNC_FLUSH
namesrvAddr=127.0.0.1:9876;127.0.0.1:9877
brokerIP1=127.0.0.1
listenPort=10911
storePathRootDir=/data/store
storePathCommitLog=/data/store/commitlog
mappedFileSizeCommitLog=1048576
autoCreateTopicEnable=false
"""


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)


def test_an_official_file_loads_as_it_is() -> None:
    config, warnings = load_broker_config(OFFICIAL)

    assert config.broker_name == "broker-a"
    assert config.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert config.file_reserved_time == 48
    assert config.mapped_file_size_commit_log == 1 << 20
    assert not config.auto_create_topic_enable
    assert config.name_servers == ("127.0.0.1:9876", "127.0.0.1:9877")
    assert warnings == []


def test_keys_of_nobody_and_keys_of_rocketmq_are_told_apart() -> None:
    _, warnings = load_broker_config("brokerNme=x\nenableLmqStats=true\n")

    misspelt, official = sorted(warnings)
    assert "brokerNme" in misspelt
    assert "brokerName" in misspelt
    assert "enableLmqStats" in official
    assert "unknown" not in official


def test_a_speed_up_that_is_not_there_is_named() -> None:
    """enableCalcFilterBitMap changes no answer: it spares the official broker some evaluations."""
    _, warnings = load_broker_config("enableCalcFilterBitMap=true\n")

    assert warnings == ["enableCalcFilterBitMap: a property of RocketMQ that has no effect here"]


def test_all_errors_are_told_with_their_lines_and_the_warnings(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broker.conf").write_text(
        "haMasterAddress=a\nbrokerNme=b\nbrokerRole=KING\nlistenPort=x\nstorePathRootDir=store\n"
    )

    command = ["broker", "-c", "broker.conf", "-n", "localhost", "--listen-port", "0"]
    assert main(command) == ExitCode.CONFIG

    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("error: ")] == [
        "error: broker.conf:1: haMasterAddress 'a' has no port: use a:10912",
        "error: broker.conf:3: brokerRole = 'KING': must be ASYNC_MASTER or SYNC_MASTER or SLAVE",
        "error: broker.conf:4: listenPort = 'x': must be a whole number from 0 to 65535",
        "error: -n: namesrvAddr 'localhost' has no port: use localhost:9876",
    ]
    assert caplog.messages == [
        "broker.conf:2: brokerNme: unknown property, did you mean brokerName?"
    ]
    assert not Path("store").exists()


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("localhost", "namesrvAddr 'localhost' has no port: use localhost:9876"),
        ("a:1; b ;", "namesrvAddr 'b' has no port: use b:9876"),
        ("::1", "namesrvAddr '::1' has no port: use [::1]:9876"),
        ("[::1]", "namesrvAddr '[::1]' has no port: use [::1]:9876"),
        ("a:", "namesrvAddr 'a:' is not host:port: the port must be a number from 1 to 65535"),
        ("a:0", "namesrvAddr 'a:0' is not host:port: the port must be a number from 1 to 65535"),
        ("a:x", "namesrvAddr 'a:x' is not host:port: the port must be a number from 1 to 65535"),
        (":1", "namesrvAddr ':1' is not host:port: the port must be a number from 1 to 65535"),
    ],
)
def test_an_address_of_a_name_server_needs_a_port(
    monkeypatch: pytest.MonkeyPatch, address: str, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_broker_config(f"namesrvAddr={address}")
    assert str(caught.value) == says
    monkeypatch.setenv("NAMESRV_ADDR", address)
    with pytest.raises(ConfigError) as caught:
        load_broker_config("")
    assert str(caught.value) == f"$NAMESRV_ADDR: {says}"


def test_a_slave_needs_an_id() -> None:
    with pytest.raises(ConfigError, match="brokerRole = SLAVE needs a brokerId above 0"):
        load_broker_config("brokerRole=SLAVE")
    config, _ = load_broker_config("brokerRole=SLAVE\nbrokerId=1")
    assert config.is_slave


def test_a_member_of_a_group_opens_its_log_to_strangers_only_when_told_to() -> None:
    """Authentication does not cover the HA port."""
    member = "enableControllerMode=true\ncontrollerAddr=127.0.0.1:60109\n"
    signed = member + "authenticationEnabled=true\n"
    with pytest.raises(ConfigError, match="authenticationEnabled needs haListenPort: whoever"):
        load_broker_config(signed)
    for text in (member, signed + "haListenPort=10912", "authenticationEnabled=true"):
        load_broker_config(text)


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("listenPort=70000", "65535"),
        ("listenPort=many", "number"),
        ("flushDiskType=LATER", "ASYNC_FLUSH"),
        ("autoCreateTopicEnable=1", "true or false"),
        ("registerNameServerPeriod=1", "10000"),
        ("brokerPermission=16", "15"),
        ("brokerId=-1", "only possible with enableControllerMode = true"),
        ("brokerId=2", "set brokerRole = SLAVE as well"),
        ("brokerRole=KING", "ASYNC_MASTER or SYNC_MASTER or SLAVE"),
        ("brokerName=", "a name"),
        ("messageDelayLevel=", "delays such as 1s 5m 2h 1d"),
        ("messageDelayLevel=1s 5q", "delays such as 1s 5m 2h 1d"),
        ("deleteWhen=24", "hours of the day"),
        ("deleteWhen=04,16", "hours of the day"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(line: str, allowed: str) -> None:
    key, _, value = line.partition("=")
    with pytest.raises(ConfigError, match=allowed) as caught:
        load_broker_config(line)
    assert (caught.value.key, caught.value.value) == (key, value)


def test_the_environment_names_name_servers_when_the_file_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "ns:9876")

    assert load_broker_config("")[0].name_servers == ("ns:9876",)
    assert load_broker_config("namesrvAddr=")[0].name_servers == ("ns:9876",)
    assert load_broker_config("namesrvAddr=other:1")[0].name_servers == ("other:1",)
    assert load_broker_config("namesrvAddr=[::1]:1;b:2;")[0].name_servers == ("[::1]:1", "b:2")


def test_what_clients_are_told() -> None:
    assert BrokerConfig().advertised_host == "127.0.0.1"
    assert BrokerConfig(bind_address="10.0.0.1").advertised_host == "10.0.0.1"
    assert BrokerConfig(bind_address="0.0.0.0", broker_ip1="b.example").advertised_host == (
        "b.example"
    )
    assert BrokerConfig(bind_address="0.0.0.0").advertised_host not in ("", "0.0.0.0")


def test_blank_name_servers_are_left_out() -> None:
    assert BrokerConfig(namesrv_addr=" a:1 ;; b:2;").name_servers == ("a:1", "b:2")
    assert BrokerConfig().name_servers == ()


#: Values whose meaning would be lost, and what the error says to do.
REFUSED = [
    ("storeType", "defaultRocksDB", "rocksDBConfigToJson"),
    ("storeType", "default;defaultRocksDB", "rocksDBConfigToJson"),
    ("enableDLegerCommitLog", "true", "controller group"),
    ("storePathCommitLog", "/a,/b", "into one"),
    ("readOnlyCommitLogStorePaths", "/old", "storePathCommitLog"),
    ("aclEnable", "true", "pocketmq auth import"),
    ("configManagerVersion", "V2", "rocksDBConfigToJson"),
    ("enableConsumeQueueExt", "true", "false"),
    ("messageStorePlugIn", "org.apache.rocketmq.tieredstore.TieredMessageStore", "pocketmq sync"),
    ("rocksdbCQDoubleWriteEnable", "true", "false"),
    ("storePathBrokerIdentity", "/x", "storePathRootDir/brokerIdentity"),
    ("timerRocksDBEnable", "true", "false"),
    ("transRocksDBEnable", "TRUE", "false"),
    ("indexRocksDBEnable", "true", "false"),
    ("useSingleRocksDBForAllConfigs", "true", "false"),
    ("authorizationProvider", "com.example.Ours", "RocketMQ's own class"),
]


@pytest.mark.parametrize(("key", "value", "remedy"), REFUSED)
def test_a_setting_whose_meaning_would_be_lost_is_refused(
    key: str, value: str, remedy: str
) -> None:
    with pytest.raises(ConfigErrors) as caught:
        load_broker_config(f"{key}={value}\n")
    (error,) = caught.value.errors
    assert error.text.startswith(f"{key} = ")
    assert remedy in error.text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("storeType", "default"),
        ("aclEnable", "false"),
        ("enableDLegerCommitLog", "false"),
        ("storePathCommitLog", "/a"),
        ("configManagerVersion", "v1"),
        (
            "authorizationProvider",
            "org.apache.rocketmq.auth.authorization.provider.DefaultAuthorizationProvider",
        ),
    ],
)
def test_their_values_that_lose_nothing_are_accepted(key: str, value: str) -> None:
    load_broker_config(f"{key}={value}\n")


def test_each_official_setting_has_an_effect_is_refused_or_is_a_warning() -> None:
    """What protects messages or access is never just a warning."""
    fields = {field.encode_name for field in msgspec.structs.fields(BrokerConfig)}
    assert REFUSED_BY_BROKER.keys() <= BROKER_KEYS
    assert REFUSED_BY_NAMESRV.keys() <= NAMESRV_KEYS | AUTH_CONFIG
    telling = re.compile(
        r"rocksdb.*Enable$|DLeger.*Log$|aclEnable|PropCRC|PlugIn$|^auth.*(Strategy|Provider)$", re.I
    )
    protecting = set(filter(telling.search, BROKER_KEYS))
    assert len(protecting) > 10
    assert protecting - fields <= REFUSED_BY_BROKER.keys()
