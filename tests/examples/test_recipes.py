"""Every program in examples/recipes runs as a user runs it."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import threading
from pathlib import Path

import httpx
import pytest

from pocketmq.testing import RocketMQ
from tests.cli.running import PROJECT, TIMEOUT, Running

RECIPES = PROJECT / "examples" / "recipes"

ORDER = {"item": "coffee", "amount": 2.5}

TESTED = {"delayed_jobs.py", "fastapi_app.py", "flask_app.py", "outbox.py"}


def test_every_recipe_is_tested_and_short() -> None:
    assert {path.name for path in RECIPES.glob("*.py")} == TESTED
    for path in RECIPES.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 80, path.name


def served(rocketmq: RocketMQ, module: str, *arguments: str) -> Running:
    return Running(
        *arguments, module=module, env={"NAMESRV_ADDR": rocketmq.namesrv, "NO_COLOR": "1"}
    )


def address(running: Running) -> str:
    return running.wait_for(r"http://127\.0\.0\.1:\d+").group()


@pytest.fixture(params=["uvicorn", "gunicorn"])
def web(rocketmq: RocketMQ, request: pytest.FixtureRequest) -> Running:
    if request.param == "uvicorn":
        arguments = ["fastapi_app:app", "--app-dir", str(RECIPES), "--port", "0"]
    else:
        arguments = ["flask_app:app", "--chdir", str(RECIPES), "--bind", "127.0.0.1:0"]
        arguments += ["--workers", "2", "--threads", "4"]
    return served(rocketmq, request.param, *arguments)


async def test_orders_of_a_web_application_arrive_whatever_stops_it(
    rocketmq: RocketMQ, web: Running
) -> None:
    """Requests that SIGTERM finds half done get their answers, and 201 means stored."""
    await rocketmq.create_topic("orders", queues=4)
    with web:
        base = await asyncio.to_thread(address, web)
        async with httpx.AsyncClient(base_url=base, timeout=TIMEOUT) as client:

            async def place(number: int) -> int:
                answer = await client.post(f"/orders/o-{number}", json=ORDER)
                return answer.status_code

            assert {await place(n) for n in range(3)} == {201}
            assert (await client.get("/health/ready")).status_code == 200
            with rocketmq.hold("SEND_MESSAGE_V2") as held:
                late = asyncio.create_task(place(3))
                await held.arrived()
                web.process.send_signal(signal.SIGTERM)
                held.release()
            assert await late == 201
        assert await asyncio.to_thread(web.process.wait, TIMEOUT) in (0, -signal.SIGTERM)
    stored = await rocketmq.drain("orders")
    assert sorted(message.keys[0] for message in stored) == [f"o-{n}" for n in range(4)]


async def test_a_web_application_is_not_ready_while_the_broker_is_away(
    rocketmq: RocketMQ, web: Running
) -> None:
    await rocketmq.create_topic("orders", queues=1)
    with web:
        base = await asyncio.to_thread(address, web)
        async with httpx.AsyncClient(base_url=base, timeout=TIMEOUT) as client:
            answer = await client.post("/orders/o-1", json=ORDER)
            assert answer.status_code == 201
            await rocketmq.stop()
            away = await client.get("/health/ready")
            assert away.status_code == 503
            assert away.headers["Retry-After"] == "1"


def recipe(name: str, *arguments: str, **env: str) -> Running:
    return Running(
        *arguments, module=f"examples.recipes.{name}", env={"PYTHONUNBUFFERED": "1", **env}
    )


def placed(database: Path) -> set[str]:
    with sqlite3.connect(database) as connection:
        return {key for (key,) in connection.execute("SELECT id FROM orders")}


async def test_an_outbox_sends_what_was_committed_whatever_is_killed(
    rocketmq: RocketMQ, tmp_path: Path
) -> None:
    await rocketmq.create_topic("orders", queues=4)
    database = tmp_path / "orders.db"
    env = {"NAMESRV_ADDR": rocketmq.namesrv, "DATABASE_URL": f"sqlite:///{database}"}
    # The second o-1 is refused by the database, and so is its message.
    with recipe("outbox", "place", "o-1", "o-2", "o-1", "o-3", **env) as placing:
        await asyncio.to_thread(placing.wait_for, "IntegrityError")
        assert await asyncio.to_thread(placing.end) == 1
    assert placed(database) == {"o-1", "o-2"}
    # Killed when the broker does not have the message yet.
    asked = threading.Event()

    def ask(_: object) -> bool:
        asked.set()
        return True

    with (
        rocketmq.ignore("SEND_MESSAGE_V2", when=ask),
        recipe("outbox", "relay", **env) as killed,
    ):
        assert await asyncio.to_thread(asked.wait, TIMEOUT)
        assert await asyncio.to_thread(killed.stop, signal.SIGKILL) == -signal.SIGKILL
    assert await rocketmq.drain("orders") == []
    # Killed when the broker has it, and the row is not deleted yet.
    with rocketmq.hold("SEND_MESSAGE_V2") as held, recipe("outbox", "relay", **env) as killed:
        await held.arrived()
        assert await asyncio.to_thread(killed.stop, signal.SIGKILL) == -signal.SIGKILL
        held.release()
    with recipe("outbox", "relay", **env) as relay:
        await asyncio.to_thread(relay.wait_for, "sent 2")
        assert await asyncio.to_thread(relay.end) == 0
    sent = await rocketmq.drain("orders")
    assert sorted(message.keys[0] for message in sent) == ["o-1", "o-1", "o-2"]


async def test_a_job_runs_when_it_is_due(rocketmq: RocketMQ) -> None:
    await rocketmq.create_topic("reminders", queues=1)
    env = {"NAMESRV_ADDR": rocketmq.namesrv}
    with (
        recipe("delayed_jobs", "work", **env) as worker,
        recipe("delayed_jobs", "remind", "60", "call Ada", **env) as later,
    ):
        assert await asyncio.to_thread(later.end) == 0, later.everything()
        assert worker.out == []
        await rocketmq.advance(61)
        await asyncio.to_thread(worker.wait_for, "reminder: call Ada")
        assert await asyncio.to_thread(worker.stop) == 0
