"""What type checkers are told of pocketmq.sync (scripts/write_sync_stub.py)."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

from pocketmq import sync

PROJECT = Path(__file__).parents[2]
STUB = PROJECT / "pocketmq" / "sync.pyi"

SCRIPT = """
from pocketmq import Message, ReconsumeLater, TransactionState, sync

with sync.Producer("shop", timeout=2) as producer:
    reveal_type(producer.send(Message("orders", b"x")))
    reveal_type(producer.post(Message("orders", b"x")).result())
    producer.send(b"no message")
    producer.nothing

consumer = sync.PushConsumer("billing", orderly=True)

@consumer.on("orders")
def bill(message: sync.ConsumedMessage) -> None:
    message.reconsume(3)

@consumer.on("orders", max_batch=3)
def bill_all(messages: list[sync.ConsumedMessage]) -> None:
    messages[0].ack()

@consumer.on("orders")
def takes_no_message(number: int) -> None: ...

for message in consumer:
    with message:
        reveal_type(message)

with sync.TransactionProducer("g", check=lambda m: TransactionState.COMMIT, retries=1) as two:
    with two.transaction(Message("t", b"x")) as begun:
        reveal_type(begun.half)
with sync.PullConsumer("g") as puller:
    reveal_type(puller.poll())
    puller.seek("middle")
with sync.Admin() as admin:
    reveal_type(admin.topics())
"""


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    path = PROJECT / "scripts" / "write_sync_stub.py"
    spec = importlib.util.spec_from_file_location("write_sync_stub", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stub_is_up_to_date(writer: ModuleType) -> None:
    expected, found = ast.parse(writer.stub_text()), ast.parse(STUB.read_text())
    assert ast.dump(found) == ast.dump(expected), "run scripts/write_sync_stub.py"


def test_it_names_what_the_module_has() -> None:
    assert sync.__all__ == sorted(
        ast.literal_eval(re.findall(r"__all__ = (\[.*?\])", STUB.read_text(), re.DOTALL)[0])
    )
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ClassDef):
            made = getattr(sync, node.name)
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and not member.decorator_list:
                    real = inspect.signature(getattr(made, member.name))
                    if "args" not in real.parameters and not member.name.startswith("__"):
                        declared = [a.arg for a in (*member.args.args, *member.args.kwonlyargs)]
                        assert declared == [
                            name for name, p in real.parameters.items() if p.kind != p.VAR_KEYWORD
                        ], f"{node.name}.{member.name}"


def test_mypy_sees_signatures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api = pytest.importorskip("mypy.api", reason="pip install 'pocketmq[lint]'")
    (tmp_path / "script.py").write_text(SCRIPT)
    monkeypatch.chdir(PROJECT)
    output, _, _ = api.run(["--strict", "--config-file=", str(tmp_path / "script.py")])
    revealed = re.findall(r'Revealed type is "([^"]*)"', output)
    assert [name.replace("builtins.", "") for name in revealed] == [
        "pocketmq.client.send_result.SendResult",
        "pocketmq.client.send_result.SendResult",
        "pocketmq.sync_push.ConsumedMessage",
        "pocketmq.client.send_result.SendResult",
        "list[pocketmq.message.message.MessageExt]",
        "list[str]",
    ]
    wrong = [line for line in output.splitlines() if ": error:" in line]
    assert [re.findall(r"\[([\w-]+)\]$", line)[0] for line in wrong] == [
        "arg-type", "attr-defined", "type-var", "arg-type",
    ], output  # fmt: skip
