"""What `import pocketmq` offers, and what it does not load."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import pocketmq
from pocketmq import testing
from pocketmq.client.errors import __all__ as ERRORS
from pocketmq.remoting.errors import RemotingError

PACKAGE = Path(pocketmq.__file__).parent

#: The modules of README's and docs' imports, and the modules of the extras that they need.
SUBMODULES = {
    "codes": "",
    "embedded": "numpy",
    "errors": "",
    "hooks": "",
    "rebalance": "",
    "selector": "",
    "spark": "pyspark",
    "sync": "",
    "telemetry": "opentelemetry",
    "testing": "",
    "types": "",
}

#: Makes every optional package unimportable, as in a base install.
BASE_INSTALL = """
import sys
for name in ("numpy", "lark", "rich", "pyarrow", "pyspark", "pandas", "opentelemetry"):
    sys.modules[name] = None
"""


def run(program: str) -> str:
    ended = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        cwd=PACKAGE.parent,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def starred(module: str) -> set[str]:
    """What `from MODULE import *` brings."""
    names: dict[str, object] = {}
    exec(f"from {module} import *", names)
    return {*names} - {"__builtins__"}


def stub_names(package: ModuleType) -> dict[str, str]:
    """The names that the stub lists, and the module that each comes from."""
    tree = ast.parse(Path(package.__file__ or "").with_suffix(".pyi").read_text())
    return {
        alias.name: node.module or ""
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }


@pytest.mark.parametrize("name", sorted(stub_names(pocketmq)))
def test_every_public_name_is_there(name: str) -> None:
    needed = SUBMODULES.get(name)
    if needed:
        pytest.importorskip(needed)
    assert getattr(pocketmq, name) is not None
    assert name in dir(pocketmq)


def test_a_star_import_brings_the_names_of_the_stub_and_no_modules() -> None:
    assert starred("pocketmq") == set(stub_names(pocketmq)) - set(SUBMODULES)
    assert starred("pocketmq.testing") == set(stub_names(testing))


def test_the_top_level_has_a_handful_of_names() -> None:
    assert len(starred("pocketmq")) <= 30


def test_each_name_is_listed_once() -> None:
    """A class is public in one module only, but for the errors at the top."""
    homes: dict[type, list[str]] = {}
    for module in ("pocketmq", *(f"pocketmq.{name}" for name in SUBMODULES)):
        for name in starred(module):
            value = getattr(import_module(module), name)
            if inspect.isclass(value) and not issubclass(value, RemotingError):
                homes.setdefault(value, []).append(module)
    ours = {k: v for k, v in homes.items() if k.__module__.startswith("pocketmq")}
    assert {k: v for k, v in ours.items() if len(v) > 1} == {}


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("errors", {"PayloadError", "SendTimeout"}),
        ("hooks", {"AfterSendHook", "BeforeSendHook", "SendHook"}),
        ("types", {"ClientOptions", "ProducerOptions"}),
    ],
)
def test_names_of_signatures_and_docs_are_public(module: str, names: set[str]) -> None:
    assert names <= starred(f"pocketmq.{module}")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Consumer'"):
        _ = pocketmq.Consumer  # type: ignore[attr-defined]


def test_errors_are_one_tree() -> None:
    for name in ERRORS:
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


def test_importing_does_not_even_read_the_list_of_names() -> None:
    assert run("import sys, pocketmq; print('ast' in sys.modules)") == "False"


def test_a_client_needs_none_of_the_extras() -> None:
    loaded = run(
        "import sys\nfrom pocketmq import Admin, Message, Producer, PullConsumer, PushConsumer\n"
        "from pocketmq import codes, errors, hooks, rebalance, selector, sync, types\n"
        "print([m for m in ('pyspark', 'pyarrow', 'numpy', 'uvloop', 'rich', 'lark',"
        " 'pocketmq.store', 'pocketmq.broker') if m in sys.modules])"
    )
    assert loaded == "[]"


def test_without_extras_everything_else_can_be_listed_and_imported() -> None:
    shown = run(
        f"{BASE_INSTALL}\n"
        "import inspect, pocketmq\n"
        "from pocketmq import *\n"
        "members = dict(inspect.getmembers(pocketmq))\n"
        "assert members['Producer'] is Producer\n"
        "print(sorted({'embedded', 'spark', 'telemetry', 'sync', 'types'} & {*members}))"
    )
    assert shown == "['sync', 'types']"


@pytest.mark.parametrize(
    ("statement", "extra"),
    [
        ("pocketmq.spark", "spark"),
        ("from pocketmq import spark", "spark"),
        ("from pocketmq.spark import RocketMQDataSource", "spark"),
        ("pocketmq.telemetry", "otel"),
        ("from pocketmq.telemetry import OpenTelemetryHook", "otel"),
        ("from pocketmq.embedded import EmbeddedServer", "server"),
        ("from pocketmq.testing import RocketMQ", "server"),
    ],
)
def test_a_name_whose_extra_is_missing_says_what_to_install(statement: str, extra: str) -> None:
    shown = run(
        f"{BASE_INSTALL}\nimport pocketmq\ntry:\n    {statement}\n"
        "except ImportError as error:\n    print(error)"
    )
    assert shown.endswith(f"pip install 'pocketmq[{extra}]'"), shown
    assert "which is not installed" in shown


def test_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()
    assert [path for path in PACKAGE.rglob("py.typed") if path.parent != PACKAGE] == []
