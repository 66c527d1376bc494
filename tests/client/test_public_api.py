"""What `import pocketmq` offers, and what it does not load."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pocketmq
import pocketmq.client
from pocketmq.remoting.errors import RemotingError


def run(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(pocketmq.__file__).parent.parent,
    ).stdout.strip()


@pytest.mark.parametrize("name", sorted(set(pocketmq.__all__) - {"RocketMQDataSource"}))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(pocketmq, name) is not None
    assert name in dir(pocketmq)


def test_the_three_lists_of_names_agree() -> None:
    tree = ast.parse(Path(pocketmq.__file__).read_text())
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        for statement in node.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert imported == set(pocketmq.__all__) - {"__version__"}
    assert imported == set(pocketmq._HOMES) | {"errors"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Consumer'"):
        _ = pocketmq.Consumer


def test_errors_are_one_tree() -> None:
    for name in pocketmq.errors.__all__:
        value = getattr(pocketmq.errors, name)
        if isinstance(value, type) and issubclass(value, Exception):
            assert issubclass(value, RemotingError), name
            assert isinstance(value.retriable, bool)


def test_importing_loads_neither_the_client_nor_pyspark() -> None:
    loaded = run(
        "import sys, pocketmq; assert pocketmq.__version__;"
        "print([m for m in ('pocketmq.client.producer.producer', 'msgspec', 'pyspark', 'pyarrow')"
        " if m in sys.modules])"
    )
    assert loaded == "[]"


def test_the_client_needs_no_pyspark_no_numpy_and_no_uvloop() -> None:
    loaded = run(
        "import sys\nfrom pocketmq import Admin, Message, Producer, PullConsumer\n"
        "print([m for m in ('pyspark', 'pyarrow', 'numpy', 'uvloop', 'rich', 'store', 'broker')"
        " if m in sys.modules])"
    )
    assert loaded == "[]"


@pytest.mark.parametrize("package", [pocketmq, pocketmq.client])
def test_the_packages_are_typed(package: object) -> None:
    assert Path(package.__file__).with_name("py.typed").exists()  # type: ignore[attr-defined]
