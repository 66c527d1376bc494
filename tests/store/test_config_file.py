"""The broker's JSON files, as the official broker reads and writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pocketmq.message import fastjson
from pocketmq.store.config_file import ConfigFile, ConfigFileError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config" / "consumerOffset.json"


def test_what_was_saved_is_loaded(path: Path) -> None:
    file = ConfigFile(path, "offsets")
    assert file.load() == {}
    file.save({"offsetTable": {"T@g": {0: 5, 1: 7}}})
    assert path.read_bytes() == b'{"offsetTable":{"T@g":{0:5,1:7}}}'
    assert ConfigFile(path, "offsets").load() == {"offsetTable": {"T@g": {"0": 5, "1": 7}}}


def test_the_content_before_stays_as_bak(path: Path) -> None:
    file = ConfigFile(path, "offsets")
    for number in (1, 2, 3):
        file.save({"n": number})
    assert (path.read_bytes(), file.backup.read_bytes()) == (b'{"n":3}', b'{"n":2}')
    file.save({"n": 3})  # the same again is no change
    assert file.backup.read_bytes() == b'{"n":2}'


@pytest.mark.parametrize("broken", [None, b"", b"  \n", b'{"n":', b"[1]", b"\xff\xfe"])
def test_bak_serves_when_the_file_does_not(
    path: Path, broken: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    file = ConfigFile(path, "offsets")
    file.save({"n": 1})
    file.save({"n": 2})
    path.unlink()
    if broken is not None:
        path.write_bytes(broken)
    loaded = ConfigFile(path, "offsets")
    assert loaded.load() == {"n": 1}
    [line] = caplog.messages
    assert line.startswith(f"{path} ")
    assert "using consumerOffset.json.bak, written 20" in line
    assert "changes of the offsets after that are lost" in line
    loaded.save({"n": 4})
    assert ConfigFile(path, "offsets").load() == {"n": 4}


@pytest.mark.parametrize("broken", [b"", b"{broken"])
def test_a_broken_file_does_not_replace_the_good_bak(path: Path, broken: bytes) -> None:
    file = ConfigFile(path, "offsets")
    file.save({"n": 1})
    file.save({"n": 2})
    path.write_bytes(broken)
    loaded = ConfigFile(path, "offsets")
    loaded.save(loaded.load())
    path.unlink()
    assert ConfigFile(path, "offsets").load() == {"n": 1}


@pytest.mark.parametrize("backup", [None, b""])
def test_an_emptied_file_without_a_bak_is_a_loss(
    path: Path, backup: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    path.write_bytes(b"")
    file = ConfigFile(path, "offsets")
    if backup is not None:
        file.backup.write_bytes(backup)
    assert file.load() == {}
    [line] = caplog.messages
    assert line.startswith(f"{path} is empty")
    assert line.endswith("all offsets are lost")


def test_nothing_readable_is_an_error(path: Path) -> None:
    file = ConfigFile(path, "offsets")
    file.save({"n": 1})
    path.write_bytes(b"{broken")
    with pytest.raises(ConfigFileError, match=r"consumerOffset.json: .*no usable"):
        ConfigFile(path, "offsets").load()
    file.backup.write_bytes(b"{broken as well")
    with pytest.raises(ConfigFileError):
        ConfigFile(path, "offsets").load()
    path.unlink()
    with pytest.raises(ConfigFileError, match="missing"):
        ConfigFile(path, "offsets").load()


def test_unknown_keys_are_kept(path: Path) -> None:
    path.parent.mkdir()
    path.write_text('{"known":1,"ofAnotherRelease":{"x":2}}')
    file = ConfigFile(path, "offsets")
    assert file.load()["known"] == 1
    file.save({"known": 2, "own": 3})
    assert ConfigFile(path, "offsets").load() == {
        "known": 2,
        "own": 3,
        "ofAnotherRelease": {"x": 2},
    }


def test_a_failing_disk_leaves_the_file_as_it_was(bench: Any, path: Path) -> None:
    file = ConfigFile(path, "offsets", bench.files)
    file.save({"n": 1})
    bench.files.broken = True
    with pytest.raises(OSError, match="Input/output error"):
        file.save({"n": 2})
    bench.files.broken = False
    assert ConfigFile(path, "offsets").load() == {"n": 1}
    file.save({"n": 2})
    assert ConfigFile(path, "offsets").load() == {"n": 2}


async def test_files_of_the_official_broker(golden: Any) -> None:
    """Integer keys without quotes; what is saved unchanged means the same."""
    paths = sorted(golden.bench.root.glob("config/*.json"))
    assert {"topics.json", "consumerOffset.json"} <= {path.name for path in paths}
    for path in paths:
        before = fastjson.decode(path.read_bytes())
        file = ConfigFile(path, "offsets")
        document = file.load()
        assert document == before
        file.save(document)
        assert ConfigFile(path, "offsets").load() == before


def test_a_file_that_takes_long_to_read_is_announced(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    path.write_bytes(b'{"n":1}' + b" " * (20 << 20))
    assert ConfigFile(path, "offsets").load() == {"n": 1}
    assert f"{path} has 20 MiB" in caplog.text
