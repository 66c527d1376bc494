from __future__ import annotations

import logging
from pathlib import Path

import pytest

from pocketmq.namesrv.kv_config import KVConfig, KVConfigError
from pocketmq.namesrv.text_file import TextFile


def open_config(path: Path, **options: int) -> KVConfig:
    config = KVConfig(TextFile(path), **options)
    config.load()
    return config


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "when needed" / "kvConfig.json"


def test_what_was_put_is_there_after_a_restart(path: Path) -> None:
    config = open_config(path)
    assert config.namespace("NS") is None
    config.put("NS", "key", "värde")
    config.put("NS", "other", "1")
    config.put("NS", "key", "new")
    config.put("B", "k", "")
    again = open_config(path)
    assert again.namespace("NS") == {"key": "new", "other": "1"}
    assert again.get("B", "k") == ""
    assert again.get("NS", "none") is None
    assert again.get("none", "none") is None


def test_the_file_is_the_official_one(path: Path) -> None:
    open_config(path).put("ORDER_TOPIC_CONFIG", "T", "b0:4;b1:4")
    assert path.read_text() == '{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"b0:4;b1:4"}}}'
    path.write_text('{\n\t"configTable":{"NS":{"a":"1"}\n\t}\n}')
    assert open_config(path).get("NS", "a") == "1"


@pytest.mark.parametrize("value", ["v", "$", "$.configTable.OTHER"])
def test_no_key_is_taken_for_a_reference(path: Path, value: str) -> None:
    """fastjson writes {"$ref": …} for an object met twice; texts are never written so."""
    config = open_config(path)
    config.put("OTHER", "key", "1")
    config.put("$ref", "$ref", value)
    again = open_config(path)
    assert again.namespace("$ref") == {"$ref": value}
    assert again.namespace("OTHER") == {"key": "1"}


def test_deleting(path: Path) -> None:
    config = open_config(path)
    config.delete("NS", "none")
    assert not path.exists()
    config.put("NS", "key", "value")
    config.delete("NS", "key")
    config.delete("NS", "key")
    assert config.get("NS", "key") is None
    assert config.namespace("NS") == {}
    assert open_config(path).namespace("NS") == {}


def test_the_predecessor_serves_where_the_file_is_broken(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = open_config(path)
    config.put("NS", "key", "1")
    config.put("NS", "key", "2")
    path.write_text('{"configTable":{"NS":{"ke')
    with caplog.at_level(logging.WARNING):
        assert open_config(path).get("NS", "key") == "1"
    assert str(path) in caplog.text


def test_a_broken_file_without_backup_is_not_overwritten(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("rubbish")
    with pytest.raises(KVConfigError, match=r"kvConfig\.json"):
        open_config(path)
    path.with_name("kvConfig.json.bak").write_bytes(b"\xff\xfe")
    with pytest.raises(KVConfigError):
        open_config(path)
    assert path.read_text() == "rubbish"


def test_a_change_that_can_not_be_written_is_not_made(path: Path) -> None:
    config = open_config(path)
    config.put("NS", "key", "1")
    path.with_name("kvConfig.json.tmp").mkdir()
    with pytest.raises(KVConfigError, match="written"):
        config.put("NS", "key", "2")
    assert config.get("NS", "key") == "1"
    with pytest.raises(KVConfigError):
        config.delete("NS", "key")
    assert config.get("NS", "key") == "1"


def test_the_table_is_bounded(path: Path) -> None:
    config = open_config(path, max_size=100)
    config.put("NS", "key", "x" * 50)
    with pytest.raises(KVConfigError, match="at most 100"):
        config.put("NS", "key2", "x" * 50)
    assert open_config(path).namespace("NS") == {"key": "x" * 50}


def test_the_table_in_the_log(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = open_config(path)
    config.put("NS", "key", "value")
    caplog.clear()
    with caplog.at_level(logging.INFO):
        config.log_table()
    assert caplog.messages == [
        "configTable SIZE: 1",
        "configTable NS: NS Key: key Value: value",
    ]
