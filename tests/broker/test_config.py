"""Broker settings: official files load as they are, and what is wrong is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from pocketmq.broker.config import BrokerConfig, load_broker_config
from pocketmq.cli import main
from pocketmq.remoting.properties_file import ConfigError
from pocketmq.remoting.service import ExitCode
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
    assert [line.partition(":")[0] for line in warnings] == ["brokerRole"]


def test_keys_of_nobody_and_keys_of_rocketmq_are_told_apart() -> None:
    _, warnings = load_broker_config("brokerNme=x\nenableControllerMode=true\n")

    misspelt, official = sorted(warnings)
    assert "brokerNme" in misspelt
    assert "brokerName" in misspelt
    assert "enableControllerMode" in official
    assert "unknown" not in official


def test_a_speed_up_that_is_not_there_is_named() -> None:
    """enableCalcFilterBitMap changes no answer: it spares the official broker some evaluations."""
    _, warnings = load_broker_config("enableCalcFilterBitMap=true\n")

    assert warnings == ["enableCalcFilterBitMap: a property of RocketMQ that has no effect here"]


def test_a_slave_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"brokerId=1\nbrokerRole=SLAVE\nstorePathRootDir={tmp_path / 'store'}\n")

    assert main(["broker", "-c", str(conf), "--listen-port", "0"]) == ExitCode.CONFIG

    assert capsys.readouterr().err == (
        "error: brokerId = '1': must be 0, a master, as this broker has no slaves and can not be "
        "one\n"
    )
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("listenPort=70000", "65535"),
        ("listenPort=many", "number"),
        ("flushDiskType=LATER", "ASYNC_FLUSH"),
        ("autoCreateTopicEnable=1", "true or false"),
        ("registerNameServerPeriod=1", "10000"),
        ("brokerPermission=16", "15"),
        ("brokerId=-1", "at least 0"),
        ("brokerId=2", "a master"),
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
    assert load_broker_config("namesrvAddr=other:1")[0].name_servers == ("other:1",)


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
