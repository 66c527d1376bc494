"""The demo's data set, from its package."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pocketmq.demo import flights

HEAD = "year,month,day,dep_delay,carrier,flight,tailnum\n"


def packed(tmp_path: Path, rows: str) -> Path:
    path = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("flights.csv", HEAD + rows)
    return path


def test_rows_of_the_two_months_become_messages(tmp_path: Path) -> None:
    rows = (
        "2013,1,1,2.0,UA,1545,N14228\n2013,10,1,0,AA,1,N1\n2013,2,1,,B6,2,NA\n2013,3,1,0,AA,3,N1\n"
    )
    messages = list(flights.read(packed(tmp_path, rows), "flights"))
    assert [(m.topic, m.tags, m.keys) for m in messages] == [
        ("flights", "UA", ("UA1545",)),
        ("flights", "B6", ("B62",)),
    ]
    assert json.loads(messages[0].body) == {
        "year": 2013, "month": 1, "day": 1, "dep_delay": 2,
        "carrier": "UA", "flight": 1545, "tailnum": "N14228",
    }  # fmt: skip
    assert json.loads(messages[1].body)["dep_delay"] is None
    assert json.loads(messages[1].body)["tailnum"] is None


@pytest.mark.skipif(
    importlib.util.find_spec(flights.PACKAGE) is None, reason="pip install 'pocketmq[demo]'"
)
def test_the_package_holds_what_the_demo_says() -> None:
    messages = list(flights.read(flights.data_file(), "flights"))
    assert len(messages) == flights.MESSAGES
    assert len({m.tags for m in messages}) == 16  # carriers
    # The package has its data loaded by pandas, which takes seconds: not here.
    code = (
        "import sys; from pocketmq.demo import flights; "
        "flights.data_file(); assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_package_is_said_with_what_to_type() -> None:
    with pytest.raises(flights.DataSetMissing, match=r"pip install 'pocketmq\[demo\]'"):
        flights.data_file("no_such_package")
