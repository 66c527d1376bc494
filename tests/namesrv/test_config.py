from __future__ import annotations

from pathlib import Path

import pytest

from pocketmq.namesrv.config import NamesrvConfig, load_namesrv_config, take_kept
from pocketmq.remoting.settings.properties_file import ConfigError


def test_defaults_are_the_official_ones_but_for_loopback() -> None:
    config = NamesrvConfig()
    assert config.listen_port == 9876
    assert config.bind_address == "127.0.0.1"
    assert config.scan_not_active_broker_interval == 5000
    assert config.kv_config_path.endswith("kvConfig.json")
    assert not config.order_message_enable
    assert config.return_order_topic_config_to_broker


def test_an_official_file_is_read_and_keys_without_effect_are_named() -> None:
    text = "listenPort = 9999\norderMessageEnable=true\nclusterTest=true\nlistenPrt=1\n"
    config, warnings = load_namesrv_config(text)
    assert (config.listen_port, config.order_message_enable) == (9999, True)
    assert len(warnings) == 2
    assert "clusterTest" in warnings[0]
    assert "did you mean listenPort" in warnings[1]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("listenPort=ninety", "whole number"),
        ("listenPort=70000", "65535"),
        ("orderMessageEnable=yes", "true or false"),
        ("scanNotActiveBrokerInterval=0", "at least 1"),
    ],
)
def test_a_bad_value_names_key_value_and_what_is_allowed(line: str, words: str) -> None:
    key, _, value = line.partition("=")
    with pytest.raises(ConfigError) as caught:
        load_namesrv_config(line)
    text = str(caught.value)
    assert key in text
    assert value in text
    assert words in text


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("enableControllerInNamesrv=true", "bin/mqcontroller"),
        ("authenticationProvider=com.example.Ours", "RocketMQ's own class"),
    ],
)
def test_a_setting_whose_meaning_would_be_lost_is_refused(line: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_namesrv_config(line)
    assert remedy in str(caught.value)


def test_settings_that_were_changed_are_taken_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "namesrv.properties"
    config = NamesrvConfig(config_store_path=str(file), listen_port=1, enable_topic_list=False)
    take_kept(config)
    assert caplog.messages == []
    file.write_text(
        "orderMessageEnable=true\nenableTopicList=false\nscanNotActiveBrokerInterval=0\n"
        "listenPort=9999\nbindAddress=0.0.0.0\nauthenticationEnabled=true\nkvConfigPath=/x\n"
        "somebodysKey=1\n"
    )
    kv_config_path = config.kv_config_path
    take_kept(config)
    assert (config.order_message_enable, config.enable_topic_list) == (True, False)
    assert config.scan_not_active_broker_interval == 5_000
    assert (config.listen_port, config.bind_address) == (1, "127.0.0.1")
    assert not config.authentication_enabled
    assert config.kv_config_path == kv_config_path
    changed, wrong = caplog.messages
    assert changed == (
        f"setting orderMessageEnable is True, as set at run time, instead of False; it is kept "
        f"in {file}"
    )
    assert wrong.startswith(f"setting scanNotActiveBrokerInterval in {file} is ignored: ")


def test_a_file_of_settings_that_cannot_be_read_does_not_prevent_a_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    take_kept(NamesrvConfig(config_store_path=str(tmp_path)))
    assert [f"settings file {tmp_path} cannot be read" in text for text in caplog.messages] == [
        True
    ]
