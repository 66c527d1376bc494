from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.listening import CannotListen, PortInUse
from pocketmq.remoting.serving.server import RemotingServer
from pocketmq.remoting.serving.service import ExitCode, run
from pocketmq.remoting.settings.properties_file import ConfigError

ROOT = Path(__file__).parents[2]


def test_a_main_that_ends_is_fine() -> None:
    seen: list[bool] = []

    async def main(stop: asyncio.Event) -> None:
        seen.append(stop.is_set())

    assert run(main) == ExitCode.OK
    assert seen == [False]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_main_to_stop(number: signal.Signals) -> None:
    before = signal.getsignal(number)

    async def main(stop: asyncio.Event) -> None:
        os.kill(os.getpid(), number)
        await stop.wait()

    assert run(main) == ExitCode.OK
    assert signal.getsignal(number) == before


def test_a_second_signal_ends_a_main_that_does_not_stop() -> None:
    async def main(stop: asyncio.Event) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    assert run(main) == 128 + signal.SIGTERM


class StoreLocked(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("listenPort", "x", "a number"), ExitCode.CONFIG),
        (PortInUse("port 1 is in use"), ExitCode.PORT_IN_USE),
        (CannotListen("no such address"), ExitCode.UNAVAILABLE),
        (StoreLocked("the store is locked by process 7"), ExitCode.STORE_LOCKED),
    ],
)
def test_expected_errors_are_one_line_and_an_exit_code(
    error: Exception, code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main(stop: asyncio.Event) -> None:
        raise error

    assert run(main, exit_codes={StoreLocked: ExitCode.STORE_LOCKED}) == code
    assert capsys.readouterr().err == f"error: {error}\n"


def test_an_unexpected_error_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(stop: asyncio.Event) -> None:
        raise ZeroDivisionError("on purpose")

    assert run(main) == ExitCode.FAILURE
    assert "ZeroDivisionError: on purpose" in caplog.text


def test_a_port_in_use_ends_the_process_in_plain_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def main(stop: asyncio.Event) -> None:
        first = RemotingServer(Dispatcher())
        await first.start()
        try:
            await RemotingServer(Dispatcher(), port=first.port).start()
        finally:
            await first.stop()

    assert run(main) == ExitCode.PORT_IN_USE
    assert "in use" in capsys.readouterr().err


def test_the_collector_is_as_before_afterwards() -> None:
    usual = (700, 10, 10)
    before = gc.get_threshold()
    during: list[tuple[int, int, int]] = []

    async def main(stop: asyncio.Event) -> None:
        during.append(gc.get_threshold())

    gc.set_threshold(*usual)
    try:
        run(main)
        assert gc.get_threshold() == usual
    finally:
        gc.set_threshold(*before)
    assert during[0][0] > usual[0]


def test_objects_that_live_are_looked_at_few_at_a_time() -> None:
    """A collection of a hundred thousand takes 50 ms, in which nobody is served."""
    most: list[int] = []

    async def main(stop: asyncio.Event) -> None:
        young, older, _ = gc.get_threshold()
        most.append(young * (older + 1))

    run(main)
    assert most[0] <= 20_000


def test_collections_that_were_off_while_loading_are_on_while_it_runs() -> None:
    during: list[bool] = []

    async def main(stop: asyncio.Event) -> None:
        during.append(gc.isenabled())

    gc.disable()
    try:
        run(main)
        assert not gc.isenabled()
    finally:
        gc.enable()
    assert during == [True]


def test_a_thread_may_run_a_server_without_signals() -> None:
    codes: list[int] = []

    async def main(stop: asyncio.Event) -> None:
        await asyncio.sleep(0)

    thread = threading.Thread(target=lambda: codes.append(run(main)))
    thread.start()
    thread.join()
    assert codes == [ExitCode.OK]


LATE = """
import asyncio, os, signal, sys, time
from pocketmq.remoting.serving.service import run

async def for_ever():
    await asyncio.Event().wait()

async def blocking():
    time.sleep(60)

async def leaving_a_thread():
    asyncio.ensure_future(asyncio.to_thread(time.sleep, 60))
    await asyncio.sleep(0)

async def in_time():
    pass

async def main(stop):
    if sys.argv[2] == "unheard":
        os.kill(os.getpid(), signal.SIGTERM)  # the event loop has no turn any more
    elif sys.argv[2] == "signal":
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()
    else:
        stop.set()
    await globals()[sys.argv[1]]()

code = run(main, stop_seconds=0.3)
time.sleep(0.6)
print("still there", flush=True)
sys.exit(code)
"""


def run_late(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LATE, *arguments],
        capture_output=True, text=True, cwd=ROOT, timeout=50, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("stopping", ["for_ever", "blocking", "leaving_a_thread"])
def test_a_process_that_does_not_stop_in_time_is_ended(stopping: str) -> None:
    ended = run_late(stopping, "signal")
    assert ended.returncode == 128 + signal.SIGTERM
    assert ended.stdout == ""
    assert "not stopped within 0.3 s" in ended.stderr


def test_the_time_begins_with_the_signal_even_if_the_event_loop_does_not_hear_it() -> None:
    ended = run_late("blocking", "unheard")
    assert ended.returncode == 128 + signal.SIGTERM
    assert "not stopped within 0.3 s" in ended.stderr


def test_the_deadline_is_also_one_without_a_signal() -> None:
    assert run_late("for_ever", "event").returncode == ExitCode.FAILURE


def test_a_process_that_stops_in_time_is_left_alone() -> None:
    ended = run_late("in_time", "signal")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "still there\n", "")


PROGRAM = """
import asyncio, sys
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.server import RemotingServer
from pocketmq.remoting.serving.service import run

async def main(stop):
    server = RemotingServer(Dispatcher())
    await server.start()
    print(server.port, flush=True)
    await stop.wait()
    await server.stop()
    print("stopped", flush=True)

sys.exit(run(main))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGTERM between processes")
def test_a_process_stops_cleanly_on_sigterm() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    assert int(process.stdout.readline()) > 0
    process.send_signal(signal.SIGTERM)
    rest, _ = process.communicate(timeout=60)
    assert rest == "stopped\n"
    assert process.returncode == 0
