"""What a manifest says is checked before it names a file: others may write to an archive."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pocketmq import open_store
from pocketmq.archive.errors import ArchiveError, WrongBrokerName
from pocketmq.archive.location import Location
from pocketmq.archive.sync import sync
from pocketmq.cli import main
from tests.archive.conftest import fill
from tests.store.made_store import NOW, MadeStore

Fields = dict[str, Any]


def archived(directory: Path) -> MadeStore:
    """Return a store in `directory` with an archive beside it, and a file that is in neither."""
    store = MadeStore(directory / "broker-a", segment_size=4096)
    fill(store, 100)
    store.write()
    sync(store.root, Location(str(directory / "archives")).open(), clock=lambda: NOW)
    (directory / "victim.txt").write_bytes(b"precious")
    return store


def manifest_in(directory: Path) -> Path:
    return directory / "archives" / "broker-a" / "manifest.json"


def edit(directory: Path, change: Callable[[Fields], None]) -> None:
    """Change the fields of the manifest."""
    path = manifest_in(directory)
    fields = json.loads(path.read_bytes())
    change(fields)
    path.write_text(json.dumps(fields))


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_prune_removes_nothing_outside_the_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = archived(tmp_path)

    def hostile(fields: Fields) -> None:
        part = json.loads(json.dumps(fields["parts"][0]))
        part |= {"begin": -1, "end": 0}
        part["log"]["name"] = part["queues"]["name"] = "../../victim.txt"
        fields["parts"].insert(0, part)

    edit(tmp_path, hostile)
    before = contents(tmp_path)
    assert main(["sync", str(store.root), str(tmp_path / "archives"), "--prune"]) != 0
    said = capsys.readouterr().err
    assert "broker-a/manifest.json is damaged: parts[0]: begin is -1" in said
    assert contents(tmp_path) == before


@pytest.mark.parametrize("key", ["log", "queues"])
@pytest.mark.parametrize("name", ["../../victim.txt", "/etc/hostname", "log/../../../victim.txt"])
def test_an_object_has_the_name_of_its_offsets(
    tmp_path: Path, key: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store = archived(tmp_path)
    edit(tmp_path, lambda fields: fields["parts"][0][key].update(name=name))
    before = contents(tmp_path)
    for options in (["--prune"], ["--verify"], []):
        assert main(["sync", str(store.root), str(tmp_path / "archives"), *options]) != 0
        assert f"manifest.json is damaged: parts[0]: {key}: name is {name!r}" in (
            capsys.readouterr().err
        )
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["..", "."])
def test_a_broker_cannot_be_named_as_the_directory_above(tmp_path: Path, name: str) -> None:
    store = archived(tmp_path)
    (store.root / "config").mkdir(exist_ok=True)
    table: Fields = {"topicConfigTable": {f"rmq_sys_SYNC_BROKER_MEMBER_{name}": {}}}
    (store.root / "config" / "topics.json").write_text(json.dumps(table))
    before = contents(tmp_path)
    with pytest.raises(WrongBrokerName, match=r"topics\.json says"):
        sync(store.root, Location(str(tmp_path / "archives")).open(), clock=lambda: NOW)
    assert contents(tmp_path) == before


NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70), st.sampled_from([-1, 0, 1, 2**31, 2**63 - 1, 2**63, 2**64])
)
NAMES = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["../../victim.txt", "..", "", "/", "log", "\0", "log/" + "0" * 20]),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.floats(), NAMES),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=5,
)
PLACES = st.sampled_from(
    [
        ("brokerName",), ("written",), ("topics",), ("topics", "orders"), ("parts",), ("parts", 0),
        ("created",), ("created", "orders"),
        *(("parts", 0, key) for key in ("begin", "end", "head", "log", "queues", "directoryAt",
                                        "directoryCrc", "messages")),
        *(("parts", 0, key, inner) for key in ("log", "queues")
          for inner in ("name", "size", "sha256")),
        ("parts", 1, "begin"), ("parts", 1, "end"),
    ]
)  # fmt: skip


@given(changes=st.lists(st.tuples(PLACES, st.one_of(NUMBERS, NAMES, JSON)), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_no_manifest_touches_what_is_not_its_own(
    changes: list[tuple[tuple[Any, ...], Any]],
) -> None:
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        store = archived(directory)

        def hostile(fields: Fields) -> None:
            for place, value in changes:
                at: Any = fields
                try:
                    for key in place[:-1]:
                        at = at[key]
                    at[place[-1]] = value
                except (KeyError, IndexError, TypeError):
                    continue  # an earlier change took the place away

        edit(directory, hostile)
        archive = directory / "archives" / "broker-a"
        before = contents(directory)
        archives = Location(str(directory / "archives")).open()
        refused = False
        try:
            sync(store.root, archives, prune=True, clock=lambda: NOW)
        except ArchiveError:
            refused = True
        after = contents(directory)
        changed = {path for path in before.keys() | after if before.get(path) != after.get(path)}
        assert not (refused and changed)
        assert all(Path(path).is_relative_to(archive) for path in changed)
        with contextlib.suppress(ArchiveError), open_store(directory / "archives") as stored:
            stored.to_arrow()
