"""docs/consumer.md names every option of the consumers with its default."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from pocketmq.client.consumer.pull import PullConsumer
from pocketmq.client.consumer.push import PushConsumer
from pocketmq.client.options import ClientOptions

PAGE = (Path(__file__).parents[2] / "docs" / "consumer.md").read_text()


def rows(title: str) -> dict[str, list[str]]:
    section = re.split(r"^##+ ", PAGE.split(f"### {title}\n")[1], flags=re.MULTILINE)[0]
    found = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0].startswith("`"):
            found[cells[0].strip("`")] = cells
    return found


@pytest.mark.parametrize("kind", [PushConsumer, PullConsumer])
def test_every_option_has_its_row(kind: type) -> None:
    parameters = dict(inspect.signature(kind).parameters)
    del parameters["options"]
    table = rows(kind.__name__)
    assert list(table) == list(parameters)
    for name, parameter in parameters.items():
        told = table[name][2].strip("`")
        default = parameter.default
        if isinstance(default, float | int) and not isinstance(default, bool):
            assert float(told) == default, name
        elif default is None or isinstance(default, bool):
            assert told in (repr(default), "~/.rocketmq_offsets"), name


def test_every_common_option_has_its_row() -> None:
    assert rows("Both").keys() | rows("PushConsumer").keys() >= ClientOptions.__annotations__.keys()
