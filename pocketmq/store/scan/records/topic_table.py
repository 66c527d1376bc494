"""A broker's own record of its topics and names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pocketmq.message.fastjson_text import FastjsonError, decode
from pocketmq.message.incarnation import CREATED_OFFSET, created_offset
from pocketmq.message.limits import REVIVE_LOG_PREFIX, SYNC_BROKER_MEMBER_PREFIX
from pocketmq.store.errors import StoreError
from pocketmq.store.files import read_small
from pocketmq.store.scan.queues.segments import UnreadableFile
from pocketmq.store.scan.store_files import LocalFiles


def configured_queues(root: Path) -> dict[str, int]:
    """Return the topics that the broker of the store at `root` knows, which may have no message
    yet, and the number of queues of each. Empty if config/topics.json is missing or invalid."""
    return {topic: _queues(config) for topic, config in _table(root, "topics.json").items()}


def created_offsets(root: Path) -> dict[str, int]:
    """Return the physical offset at which the log ended when each topic of the store at `root` was
    created, without those for which that is not known."""
    offsets = {topic: _created(config) for topic, config in _table(root, "topics.json").items()}
    return {topic: offset for topic, offset in offsets.items() if offset}


def broker_name(root: Path) -> str:
    """Return the name of the broker whose store is at `root`.

    Every broker, this one or the official one, has a topic that is named after it in
    config/topics.json. A broker that was renamed has one for each of its names: the first in the
    file counts, which is the present name if this broker wrote the file. Where neither the
    file nor its .bak has such a topic, it is the name of the directory.
    """
    for file in ("topics.json", "topics.json.bak"):
        for topic in _table(root, file):
            name = topic.removeprefix(SYNC_BROKER_MEMBER_PREFIX)
            if name and name != topic:
                return name
    return root.resolve().name


def local_files(root: Path) -> LocalFiles:
    """Return the store at `root` as readers know it."""
    return LocalFiles(root, broker_name(root))


def roots_by_broker(
    roots: Iterable[Path], clash: Callable[[str, Path, Path], Exception]
) -> dict[str, Path]:
    """Return stores by the names of their brokers. If a broker has two stores, raises what `clash`
    returns for its name and both stores."""
    found: dict[str, Path] = {}
    for root in roots:
        name = broker_name(root)
        other = found.setdefault(name, root)
        if other != root:
            raise clash(name, root, other)
    return found


def own_names(topics: Iterable[str]) -> set[str]:
    """Return the names of a broker and of its cluster, from `topics`, the topics it has.

    A broker has topics with both names, and each name also with a fixed prefix.
    """
    prefixes = (REVIVE_LOG_PREFIX, SYNC_BROKER_MEMBER_PREFIX)
    return {
        topic.removeprefix(prefix)
        for topic in topics
        for prefix in prefixes
        if topic.startswith(prefix)
    }


def _table(root: Path, file: str) -> dict[str, Any]:
    """Return the topics in a file of config/; none if it is missing or invalid.

    Raises UnreadableFile if it may not be read: the broker and its topics would seem to be others.
    """
    path = root / "config" / file
    try:
        table = decode(read_small(path))["topicConfigTable"]
        return dict(table.items())
    except PermissionError as error:
        raise UnreadableFile(error, path) from None
    except (OSError, StoreError, FastjsonError, KeyError, TypeError, AttributeError):
        return {}


def _created(config: object) -> int:
    attributes = config.get("attributes") if isinstance(config, dict) else None
    offset = attributes.get(CREATED_OFFSET) if isinstance(attributes, dict) else None
    return created_offset({CREATED_OFFSET: offset}) if isinstance(offset, str) else 0


def _queues(config: object) -> int:
    """Of a topic: as many as can be written to or read from."""
    if not isinstance(config, dict):
        return 0
    numbers = (config.get(name) for name in ("readQueueNums", "writeQueueNums"))
    return max((number for number in numbers if isinstance(number, int)), default=0)
