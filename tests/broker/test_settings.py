"""Settings as admins see and change them while the broker runs."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pytest

from pocketmq.broker.broker import Broker
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.live_config import LIVE
from pocketmq.remoting.bodies.registration import TopicConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.settings.properties_file import format_properties, parse_properties
from tests.broker.conftest import Client, Connect, NameServerStub, StartBroker
from tests.test_architecture import PROJECT
from tests.unprivileged import unprivileged

SYSTEM_ERROR, MESSAGE_ILLEGAL, NO_PERMISSION, NO_TOPIC, INVALID = 1, 13, 16, 17, 29


async def update(client: Client, **properties: str) -> Command:
    body = format_properties(properties).encode()
    return await client.request(RequestCode.UPDATE_BROKER_CONFIG, None, body)


async def settings(client: Client) -> dict[str, str]:
    answer = await client.request(RequestCode.GET_BROKER_CONFIG)
    return parse_properties(bytes(answer.body).decode())


async def topic_config(client: Client, topic: str) -> TopicConfig:
    code = RequestCode.GET_TOPIC_CONFIG
    return TopicConfig.decode((await client.request(code, ext_fields={"topic": topic})).body)


def test_what_may_change_are_settings_of_ours() -> None:
    names = {field.encode_name for field in msgspec.structs.fields(BrokerConfig)}
    assert names >= LIVE


def test_nobody_keeps_a_copy_of_what_may_change() -> None:
    """A constructor that reads such a setting would not see it change."""
    fields = msgspec.structs.fields(BrokerConfig)
    live = {field.name for field in fields if field.encode_name in LIVE}
    copies = []
    package = PROJECT / "pocketmq"
    for path in (*(package / "broker").rglob("*.py"), *(package / "store").glob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and function.name == "__init__":
                copies += [
                    f"{path.relative_to(PROJECT)}: {node.attr}"
                    for node in ast.walk(function)
                    if isinstance(node, ast.Attribute)
                    and node.attr in live
                    and ast.unparse(node.value).endswith("config")
                ]
    assert copies == []


async def test_new_values_count_at_once(client: Client, topic: str) -> None:
    assert (await client.send(topic, b"x" * 2000)).code == 0
    before = await client.request(RequestCode.GET_BROKER_CONFIG)

    answer = await update(client, maxMessageSize="1024", autoCreateTopicEnable="false")

    assert (answer.code, answer.remark) == (0, None)
    shown = await settings(client)
    assert (shown["maxMessageSize"], shown["autoCreateTopicEnable"]) == ("1024", "false")
    assert (await client.send(topic, b"x" * 2000)).code == MESSAGE_ILLEGAL
    assert (await client.send(f"{topic}_new")).code == NO_TOPIC
    after = await client.request(RequestCode.GET_BROKER_CONFIG)
    versions = [msgspec.json.decode(a.ext_fields["version"])["counter"] for a in (before, after)]
    assert versions[1] == versions[0] + 1


async def test_the_template_of_new_topics_follows(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    client = await connect(await start_broker(auto_create_topic_enable=False))
    assert (await client.send(topic)).code == NO_TOPIC

    await update(client, autoCreateTopicEnable="true", defaultTopicQueueNums="3")

    assert (await client.send(topic, default_topic_queue_nums=8)).code == 0
    assert (await topic_config(client, topic)).write_queue_nums == 3


async def test_a_broker_without_read_permission(
    start_broker: StartBroker, connect: Connect, name_server: NameServerStub, topic: str
) -> None:
    client = await connect(await start_broker(namesrv_addr=name_server.address))
    await client.send(topic)
    await name_server.registered.get()
    await name_server.registered.get()

    assert (await update(client, brokerPermission="2")).code == 0

    # The name server heard of it before the admin got the answer.
    _, body = name_server.registered.get_nowait()
    table = body.topic_config_serialize_wrapper.topic_config_table
    assert {topic, "SELF_TEST_TOPIC"} <= table.keys()
    assert {config.perm & 6 for config in table.values() if config.perm & 6} == {2}
    assert (await client.pull(topic)).code == NO_PERMISSION
    assert (await topic_config(client, topic)).perm == 6
    assert (await update(client, brokerPermission="6")).code == 0
    assert (await client.pull(topic)).code == 0


@pytest.mark.parametrize(
    ("properties", "code", "remark"),
    [
        ({"listenPort": "1"}, 1, "listenPort cannot change while the broker runs: set it in"),
        ({"nonsense": "1"}, 1, "nonsense is not a property of a broker"),
        (
            {"osPageCacheBusyTimeOutMills": "1", "nonsense": "1"},
            1,
            "nonsense is not a property of a broker",
        ),
        ({"brokerRole": "SLAVE"}, 1, "brokerRole cannot change while the broker runs"),
        (
            {"osPageCacheBusyTimeOutMills": "1" * 4097},
            1,
            "osPageCacheBusyTimeOutMills: the value has 4097 characters",
        ),
        ({"brokerPermission": "abc"}, 1, "brokerPermission = 'abc': must be a whole number from 0"),
        ({"brokerConfigPath": "/x"}, NO_PERMISSION, "Can not update config in black list."),
        ({"configBlackList": ""}, NO_PERMISSION, "Can not update config in black list."),
    ],
)
async def test_what_can_not_change_says_so_and_nothing_changes(
    client: Client, properties: dict[str, str], code: int, remark: str
) -> None:
    before = await settings(client)

    answer = await update(client, maxMessageSize="2048", **properties)

    assert answer.code == code
    assert (answer.remark or "").startswith(remark)
    assert await settings(client) == before


async def test_an_official_setting_without_effect_is_accepted_with_a_warning(
    start_broker: StartBroker,
    connect: Connect,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = tmp_path / "broker.conf"
    client = await connect(await start_broker(broker_config_path=str(file)))
    assert "osPageCacheBusyTimeOutMills" not in await settings(client)

    answer = await update(client, osPageCacheBusyTimeOutMills="10912", maxMessageSize="2048")

    warning = "osPageCacheBusyTimeOutMills: an official setting that has no effect here"
    assert (answer.code, answer.remark) == (0, warning)
    assert f"updateBrokerConfig: {warning}" in caplog.messages
    shown = await settings(client)
    assert (shown["osPageCacheBusyTimeOutMills"], shown["maxMessageSize"]) == ("10912", "2048")
    assert "osPageCacheBusyTimeOutMills=10912" in file.read_text()
    assert (await update(client, maxMessageSize="4096")).remark is None


async def test_a_setting_without_effect_in_the_file_is_shown_after_a_restart(
    start_broker: StartBroker, connect: Connect, tmp_path: Path
) -> None:
    """Whoever wrote it there: a person, or this broker after updateBrokerConfig."""
    file = tmp_path / "broker.conf"
    file.write_text(
        "osPageCacheBusyTimeOutMills=10912\nflushDiskType=ASYNC_FLUSH\nmaxMessageSize=1\nmine=1\n"
    )
    broker = await start_broker(broker_config_path=str(file))
    client = await connect(broker)
    before = await settings(client)
    assert before["osPageCacheBusyTimeOutMills"] == "10912"
    assert "mine" not in before  # no setting of RocketMQ
    assert before["maxMessageSize"] == str(BrokerConfig().max_message_size)  # the one in force

    assert (
        await update(client, osPageCacheBusyTimeOutMills="10913", enableLmqStats="true")
    ).code == 0
    await broker.stop()
    client = await connect(await start_broker(broker_config_path=str(file)))
    shown = await settings(client)
    assert (shown["osPageCacheBusyTimeOutMills"], shown["enableLmqStats"]) == ("10913", "true")


async def test_all_that_can_not_change_is_named(client: Client) -> None:
    answer = await update(client, brokerName="x", storePathRootDir="/x")

    assert "brokerName cannot" in (answer.remark or "")
    assert "storePathRootDir cannot" in (answer.remark or "")


async def test_more_settings_can_be_closed(start_broker: StartBroker, connect: Connect) -> None:
    client = await connect(await start_broker(config_black_list="maxMessageSize;x"))

    assert (await update(client, maxMessageSize="2048")).code == NO_PERMISSION


async def test_nothing_to_change(client: Client) -> None:
    assert (await client.request(RequestCode.UPDATE_BROKER_CONFIG)).code == 0
    answer = await client.request(RequestCode.UPDATE_BROKER_CONFIG, None, b"a=\xff")
    assert (answer.code, (answer.remark or "")[:30]) == (1, "the settings are not UTF-8 tex")


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
async def test_changes_are_kept_in_the_file(
    start_broker: StartBroker, connect: Connect, tmp_path: Path, encoding: str
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("# für mich\nmaxMessageSize=4096\nosPageCacheBusyTimeOutMills=1\n", encoding)
    client = await connect(await start_broker(broker_config_path=str(file)))

    assert (await update(client, maxMessageSize="2048", longPollingEnable="false")).code == 0

    assert file.read_text(encoding) == (
        "# für mich\nmaxMessageSize=2048\nosPageCacheBusyTimeOutMills=1\nlongPollingEnable=false\n"
    )
    before = (tmp_path / "broker.conf.bak").read_text(encoding)
    assert before.startswith("# für mich\nmaxMessageSize=4096")


async def test_a_file_that_can_not_be_written(
    start_broker: StartBroker, connect: Connect, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker: Broker = await start_broker(broker_config_path=str(tmp_path))
    client = await connect(broker)

    answer = await update(client, maxMessageSize="2048")

    assert answer.code == SYSTEM_ERROR
    assert answer.remark == f"changed, but not written to {tmp_path.name}: Is a directory"
    assert f"not written to {tmp_path}: " in caplog.text
    assert (await settings(client))["maxMessageSize"] == "2048"


async def test_a_setting_that_would_open_the_broker_is_refused_by_name(client: Client) -> None:
    answer = await update(client, aclEnable="true")
    assert answer.code != 0
    assert "aclEnable = true: access lists of ACL 1.0 are not read" in (answer.remark or "")


async def test_without_a_file_a_change_is_kept_in_the_store(
    start_broker: StartBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """A drained broker stays drained, whatever the command line says."""
    broker = await start_broker(broker_permission=6)
    assert (await update(await connect(broker), brokerPermission="4")).code == 0
    await broker.stop()
    caplog.clear()
    again = await start_broker(broker_permission=6)
    assert again.config.broker_permission == 4
    kept = broker.config.root / "config" / "broker.properties"
    assert kept.read_text() == "brokerPermission=4\n"
    line = "setting brokerPermission is 4, as set at run time, instead of 6"
    assert any(message.startswith(line) and str(kept) in message for message in caplog.messages)
    assert (await update(await connect(again), brokerPermission="6")).code == 0
    await again.stop()
    last = await start_broker(broker_permission=6)
    assert last.config.broker_permission == 6


async def test_what_is_kept_never_prevents_a_start(
    start_broker: StartBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    (root / "config").mkdir(parents=True)
    (root / "config" / "broker.properties").write_text(
        "brokerPermission=99\nstorePathRootDir=/\nnonsense=1\naclEnable=true\nmaxMessageSize=2048\n"
    )
    broker = await start_broker()
    assert (broker.config.broker_permission, broker.config.max_message_size) == (6, 2048)
    for name in ("brokerPermission", "storePathRootDir", "nonsense", "aclEnable"):
        assert any(message.startswith(f"setting {name} in") for message in caplog.messages)


async def test_the_file_of_the_start_goes_before_what_is_kept(
    start_broker: StartBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    (root / "config").mkdir(parents=True)
    (root / "config" / "broker.properties").write_text("brokerPermission=4\n")
    file = tmp_path / "broker.conf"
    file.write_text("brokerPermission=6\n")
    broker = await start_broker(broker_config_path=str(file))
    assert broker.config.broker_permission == 6
    assert any("broker.properties is ignored, since" in message for message in caplog.messages)


async def test_a_file_in_a_directory_that_cannot_be_written_is_left_alone(
    start_broker: StartBroker,
    connect: Connect,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As a ConfigMap, or /etc of somebody else: changes are kept in the store, and win."""
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    file = mounted / "broker.conf"
    file.write_text("brokerPermission=6\nosPageCacheBusyTimeOutMills=1\n")
    mounted.chmod(0o500)
    with unprivileged():
        broker = await start_broker(broker_config_path=str(file))
    answer = await update(
        await connect(broker), brokerPermission="4", osPageCacheBusyTimeOutMills="2"
    )
    assert answer.code == 0
    await broker.stop()
    caplog.clear()
    with unprivileged():
        again = await start_broker(broker_config_path=str(file))
    assert again.config.broker_permission == 4
    shown = await settings(await connect(again))
    assert shown["osPageCacheBusyTimeOutMills"] == "2"
    assert file.read_text() == "brokerPermission=6\nosPageCacheBusyTimeOutMills=1\n"
    line = "setting brokerPermission is 4, as set at run time, instead of 6"
    assert any(message.startswith(line) for message in caplog.messages)


@pytest.mark.parametrize(
    ("engine", "wheel", "text"),
    [
        ("F", True, None),
        ("R", True, "no timer in RocksDB"),
        ("X", True, "param error"),
        ("", True, "param error"),
        ("F", False, "broker timerWheelEnable is false"),
    ],
)
async def test_the_only_timer_engine_is_that_in_files(
    start_broker: StartBroker, connect: Connect, engine: str, wheel: bool, text: str | None
) -> None:
    client = await connect(await start_broker(timer_wheel_enable=wheel))

    answer = await client.request(RequestCode.SWITCH_TIMER_ENGINE, ext_fields={"E_T": engine})

    assert answer.code == (0 if text is None else INVALID)
    assert (text or "switch timer engine success") in (answer.remark or "")
