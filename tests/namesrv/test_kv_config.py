from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
from pathlib import Path

import pytest

from pocketmq.namesrv.kv_config import KVConfig, KVConfigError
from pocketmq.namesrv.text_file import TextFile
from tests.namesrv.files import HeldFile, exists, read, write


def open_config(path: Path, **options: int) -> KVConfig:
    config = KVConfig(TextFile(path), **options)
    config.load()
    return config


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "when needed" / "kvConfig.json"


async def test_what_was_put_is_there_after_a_restart(path: Path) -> None:
    config = open_config(path)
    assert config.namespace("NS") is None
    await config.put("NS", "key", "värde")
    await config.put("NS", "other", "1")
    await config.put("NS", "key", "new")
    await config.put("B", "k", "")
    again = open_config(path)
    assert again.namespace("NS") == {"key": "new", "other": "1"}
    assert again.get("B", "k") == ""
    assert again.get("NS", "none") is None
    assert again.get("none", "none") is None


async def test_the_file_is_the_official_one(path: Path) -> None:
    await open_config(path).put("ORDER_TOPIC_CONFIG", "T", "b0:4;b1:4")
    assert read(str(path)) == '{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"b0:4;b1:4"}}}'
    write(str(path), '{\n\t"configTable":{"NS":{"a":"1"}\n\t}\n}')
    assert open_config(path).get("NS", "a") == "1"


@pytest.mark.parametrize("value", ["v", "$", "$.configTable.OTHER"])
async def test_no_key_is_taken_for_a_reference(path: Path, value: str) -> None:
    """fastjson writes {"$ref": …} for an object met twice; texts are never written so."""
    config = open_config(path)
    await config.put("OTHER", "key", "1")
    await config.put("$ref", "$ref", value)
    again = open_config(path)
    assert again.namespace("$ref") == {"$ref": value}
    assert again.namespace("OTHER") == {"key": "1"}


async def test_deleting(path: Path) -> None:
    config = open_config(path)
    await config.delete("NS", "none")
    assert not exists(str(path))
    await config.put("NS", "key", "value")
    await config.delete("NS", "key")
    await config.delete("NS", "key")
    assert config.get("NS", "key") is None
    assert config.namespace("NS") == {}
    assert open_config(path).namespace("NS") == {}


async def test_the_predecessor_serves_where_the_file_is_broken(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = open_config(path)
    await config.put("NS", "key", "1")
    await config.put("NS", "key", "2")
    write(str(path), '{"configTable":{"NS":{"ke')
    with caplog.at_level(logging.WARNING):
        assert open_config(path).get("NS", "key") == "1"
    assert str(path) in caplog.text


def test_a_pipe_instead_of_the_file_is_refused_at_once(path: Path) -> None:
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.raises(KVConfigError, match="it is not a regular file"):
        open_config(path)
    path.with_name(path.name + ".bak").write_text('{"configTable":{"A":{"k":"v"}}}')
    assert open_config(path).get("A", "k") == "v"


def test_a_broken_file_without_backup_is_not_overwritten(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("rubbish")
    with pytest.raises(KVConfigError, match=r"kvConfig\.json"):
        open_config(path)
    path.with_name("kvConfig.json.bak").write_bytes(b"\xff\xfe")
    with pytest.raises(KVConfigError):
        open_config(path)
    assert path.read_text() == "rubbish"


async def test_a_change_that_can_not_be_written_is_not_made(path: Path) -> None:
    config = open_config(path)
    await config.put("NS", "key", "1")
    path.with_name("kvConfig.json.tmp").mkdir()
    with pytest.raises(KVConfigError, match="written"):
        await config.put("NS", "key", "2")
    assert config.get("NS", "key") == "1"
    with pytest.raises(KVConfigError):
        await config.delete("NS", "key")
    assert config.get("NS", "key") == "1"


async def test_the_table_is_bounded(path: Path) -> None:
    config = open_config(path, max_size=100)
    await config.put("NS", "key", "x" * 50)
    with pytest.raises(KVConfigError, match="at most 100"):
        await config.put("NS", "key2", "x" * 50)
    assert open_config(path).namespace("NS") == {"key": "x" * 50}


async def test_the_size_is_that_of_the_file(path: Path) -> None:
    config = open_config(path, max_size=200)
    for number in range(9):
        for change in (
            config.put(f"N{number % 3}", f"k{number}", '"ä' * number),
            config.put("NS", "key", "x" * number * 5),
            config.delete(f"N{number % 2}", f"k{number - 1}"),
        ):
            with contextlib.suppress(KVConfigError):
                await change
        assert len(read(str(path)).encode()) <= 200
    fitting = open_config(path, max_size=len(read(str(path)).encode()))
    await fitting.put("NS", "key", "y" * len(fitting.get("NS", "key") or ""))
    with pytest.raises(KVConfigError, match="at most"):
        await fitting.put("NS", "key", "y" * (len(fitting.get("NS", "key") or "") + 1))


async def test_a_large_table_is_written_in_order(path: Path) -> None:
    table = {f"k{number}": str(number) for number in range(3000)}
    write(str(path), json.dumps({"configTable": {"A": table, "B": {}}}))
    config = open_config(path)
    await asyncio.gather(
        config.put("A", "k7", "changed"),
        config.delete("A", "k2000"),
        config.put("A", "new", "1"),
        *(config.delete("A", f"k{number}") for number in range(512, 1100)),
        config.put("A", "k600", "again"),
        config.put("C", "k", ""),
        config.delete("D", "k"),
    )
    expected = {
        key: value
        for key, value in table.items()
        if not (512 <= int(key[1:]) < 1100 or key == "k2000")
    }
    expected |= {"k7": "changed", "new": "1", "k600": "again"}
    assert config.namespace("A") == expected
    found = json.loads(read(str(path)))["configTable"]
    assert found == {"A": expected, "B": {}, "C": {"k": ""}}
    assert [key for key in found["A"] if key in table][:8] == [f"k{number}" for number in range(8)]


async def test_changes_during_a_write_share_the_next_one(path: Path) -> None:
    file = HeldFile(path)
    config = KVConfig(file)
    first = asyncio.create_task(config.put("NS", "first", "1"))
    await file.begun()
    assert config.get("NS", "first") is None
    others = [asyncio.create_task(config.put("NS", "key", str(each))) for each in range(50)]
    deletion = asyncio.create_task(config.delete("NS", "first"))
    await asyncio.sleep(0)
    file.go_on()
    await first
    assert config.get("NS", "first") == "1"
    await file.begun()
    assert not any(task.done() for task in (*others, deletion))
    file.go_on()
    await asyncio.gather(*others, deletion)
    assert file.writes == 2
    assert config.namespace("NS") == {"key": "49"}
    assert json.loads(read(str(path))) == {"configTable": {"NS": {"key": "49"}}}


async def test_a_write_has_a_bounded_number_of_changes(path: Path) -> None:
    file = HeldFile(path)
    config = KVConfig(file)
    changes = [asyncio.create_task(config.put("NS", str(each), "")) for each in range(2500)]
    for done in 0, 1000, 2000:
        await file.begun()
        assert len(config.namespace("NS") or ()) == done
        file.go_on()
    await asyncio.gather(*changes)
    assert open_config(path).namespace("NS") == {str(each): "" for each in range(2500)}


async def test_a_failed_write_fails_the_changes_in_it_only(path: Path) -> None:
    file = HeldFile(path)
    config = KVConfig(file)
    first = asyncio.create_task(config.put("NS", "first", "1"))
    await file.begun()
    second = asyncio.create_task(config.put("NS", "second", "2"))
    await asyncio.sleep(0)
    file.go_on(OSError(errno.ENOSPC, "no space", "/path"))
    with pytest.raises(KVConfigError, match=r"^kvConfig.json cannot be written: no space$"):
        await first
    await file.begun()
    file.go_on()
    await second
    assert config.namespace("NS") == {"second": "2"}
    assert json.loads(read(str(path))) == {"configTable": {"NS": {"second": "2"}}}


async def test_a_write_that_is_cancelled_is_done_again(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = HeldFile(path)
    config = KVConfig(file)
    change = asyncio.create_task(config.put("NS", "key", "1"))
    await file.begun()
    [writing] = [task for task in asyncio.all_tasks() if task.get_name().startswith("writing ")]
    writing.cancel()
    file.go_on()
    await file.begun()
    file.go_on()
    await change
    await config.stop()
    assert open_config(path).namespace("NS") == {"key": "1"}
    assert "was cancelled" in caplog.text


async def test_what_waits_is_bounded_and_written_at_the_end(path: Path) -> None:
    file = HeldFile(path)
    config = KVConfig(file, max_size=100)
    first = asyncio.create_task(config.put("NS", "key", "x" * 50))
    await file.begun()
    with pytest.raises(KVConfigError, match="try again"):
        await config.put("NS", "key", "y" * 50)
    last = asyncio.create_task(config.put("NS", "key", "z"))
    stopped = asyncio.create_task(config.stop())
    await asyncio.sleep(0)
    file.go_on()
    await file.begun()
    file.go_on()
    await asyncio.gather(first, last, stopped)
    assert open_config(path).namespace("NS") == {"key": "z"}


async def test_the_table_in_the_log(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = open_config(path)
    await config.put("NS", "key", "value")
    caplog.clear()
    with caplog.at_level(logging.INFO):
        config.log_table()
    assert caplog.messages == [
        "configTable SIZE: 1",
        "configTable NS: NS Key: key Value: value",
    ]


def test_a_large_table_does_not_fill_the_log(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = {"N": {f"k{number}": "a\n" + "v" * 5000 for number in range(1500)}}
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"configTable": table}))
    config = open_config(path)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        config.log_table()
    assert len(caplog.messages) == 1002
    assert caplog.messages[-1] == "configTable: 500 more entries"
    assert max(map(len, caplog.messages)) < 2000
    assert not any("\n" in line for line in caplog.messages)
