"""A relay on another loopback address that can make a broker slow to reach."""

from __future__ import annotations

import asyncio

__all__ = ["SlowRelay"]


class SlowRelay:
    """Listens on `host`:`port` and passes everything on to `target` ("host:port"), both ways;
    what comes back is held for `delay` seconds, which may be changed at any time."""

    def __init__(self, host: str, port: int, target: str) -> None:
        self._host = host
        self._port = port
        self._target = target.rpartition(":")
        self._tasks: set[asyncio.Task[None]] = set()
        self.delay = 0.0

    async def __aenter__(self) -> SlowRelay:
        self._server = await asyncio.start_server(self._accept, self._host, self._port)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._relay(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target
        try:
            broker_reader, broker_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        try:
            forth = asyncio.ensure_future(self._pass(reader, broker_writer, False))
            back = asyncio.ensure_future(self._pass(broker_reader, writer, True))
            try:
                await asyncio.wait((forth, back), return_when=asyncio.FIRST_COMPLETED)
            finally:
                forth.cancel()
                back.cancel()
        finally:
            writer.close()
            broker_writer.close()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, slow: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(65536):
            if slow and self.delay:
                # Timers of the same delay keep their order.
                loop.call_later(self.delay, _write, writer, data)
            else:
                _write(writer, data)


def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    if not writer.is_closing():
        writer.write(data)
