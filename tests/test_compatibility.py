"""docs/compatibility.md says what the processors register, and why the rest is not served."""

from __future__ import annotations

import msgspec
import pytest

from pocketmq.broker.config import BrokerConfig
from pocketmq.namesrv.config import NamesrvConfig
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.settings.official_config_keys import BROKER_KEYS, NAMESRV_KEYS
from scripts.write_compatibility_page import NOT_SERVED, page, served
from tests.test_architecture import PROJECT


@pytest.fixture
async def modules() -> dict[int, list[str]]:
    return await served()


def test_every_code_is_served_or_explained(modules: dict[int, list[str]]) -> None:
    unexplained = [c.name for c in RequestCode if c not in modules and c.name not in NOT_SERVED]
    assert unexplained == []
    assert sorted(c.name for c in RequestCode if c in modules and c.name in NOT_SERVED) == []
    assert NOT_SERVED.keys() <= RequestCode.__members__.keys()
    assert modules.keys() <= set(RequestCode)


def test_the_page_is_up_to_date(modules: dict[int, list[str]]) -> None:
    written = (PROJECT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    assert written == page(modules), "write it again: python scripts/write_compatibility_page.py"
    assert "| 105 | GET_ROUTEINFO_BY_TOPIC | [pocketmq/namesrv/processors/route.py]" in written


def test_the_modules_that_serve_are_there(modules: dict[int, list[str]]) -> None:
    for paths in modules.values():
        assert all((PROJECT / path).is_file() for path in paths)


def test_every_official_setting_is_told(modules: dict[int, list[str]]) -> None:
    written = page(modules)
    fields = {
        field.encode_name
        for config in (BrokerConfig, NamesrvConfig)
        for field in msgspec.structs.fields(config)
    }
    for key in (BROKER_KEYS | NAMESRV_KEYS) - fields:
        assert f"`{key}`" in written
