"""The web application: routes, files, and middleware."""

from __future__ import annotations

import asyncio
import logging
import socket
from http import HTTPStatus
from importlib.resources import files
from typing import Any, ClassVar, Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from pocketmq.client.errors import (
    NoNameServer,
    NoPermission,
    NoRouteInfo,
    RemotingConnectError,
    RemotingError,
    SubscriptionGroupNotExist,
    TopicNotExist,
    is_silence,
)
from pocketmq.dashboard.forms import Forms
from pocketmq.dashboard.guard import HEADERS, is_own_host, is_own_origin
from pocketmq.dashboard.pages import BODY, TAIL_EVENTS, Pages
from pocketmq.dashboard.parts import Parts
from pocketmq.dashboard.services import REFRESH, Services, services_of
from pocketmq.dashboard.views.topics import missing_topic
from pocketmq.limited_log import LimitedLog

log = logging.getLogger(__name__)

#: Bytes of the largest form.
_MOST_BYTES: Final = 64 * 1024
#: Bytes that are read at once.
_PIECE: Final = 4 * 1024
_FORM_TYPE: Final = "application/x-www-form-urlencoded"
_FILES: Final = {
    "app.css": "text/css",
    "app.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}

#: Pages that are generated at the same time.
_MOST_PAGES: Final = 16
#: Open connections; a page takes a few. In a broker, they count against its open files.
MOST_CONNECTIONS: Final = 256
_BOUND_SECONDS: Final = 0.5
_SERVING: Final = web.AppKey("serving", set[web.RequestHandler])
#: Seconds for the rest of a form.
_FORM_SECONDS: Final = 10.0
#: Seconds for pages to finish at a shutdown.
_END_SECONDS: Final = 1.0


async def serve(parts: Parts, listening: socket.socket) -> None:
    """Serve pages on a socket until cancelled."""
    services = services_of(parts, port=listening.getsockname()[1])
    app = make_app(services)
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=_RequestLog(log),
        shutdown_timeout=_END_SECONDS,
        lingering_time=0,  # a refused body is not read
    )
    await runner.setup()
    server = runner.server
    assert server is not None
    accepting: asyncio.Server | None = None
    try:
        loop = asyncio.get_running_loop()
        accepting = await loop.create_server(lambda: _Connection(server()), sock=listening)
        await _bound(server, app[_SERVING])
    finally:
        if accepting is not None:
            accepting.close()
        await runner.cleanup()
        await services.sessions.end_all()


class _Connection(asyncio.BufferedProtocol):
    """Hands on what a client sends, in small pieces, and nothing once the connection is being
    closed.

    aiohttp keeps an error for each piece that is no HTTP, and with it the piece, in cycles of
    garbage. The garbage collector comes after tens of thousands of objects, however large they are.
    """

    _buffer: ClassVar[bytearray] = bytearray(_PIECE)

    def __init__(self, handler: web.RequestHandler) -> None:
        self._handler = handler
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._handler.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._handler.connection_lost(exc)

    def pause_writing(self) -> None:
        self._handler.pause_writing()

    def resume_writing(self) -> None:
        self._handler.resume_writing()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if not self._transport.is_closing():
            self._handler.data_received(bytes(self._buffer[:nbytes]))

    def eof_received(self) -> None:
        self._handler.eof_received()


async def _bound(server: web.Server, serving: set[web.RequestHandler]) -> None:
    """Close connections above the limit: first the oldest ones of those without a request, then the
    newest ones. aiohttp has no limit, and keeps a connection that sends nothing for ever: a few
    hundred of these must not keep others out."""
    while True:
        await asyncio.sleep(_BOUND_SECONDS)
        connections = server.connections
        most = max(len(connections) - MOST_CONNECTIONS, 0)
        idle = [each for each in connections if each not in serving]
        busy = [each for each in connections if each in serving]
        for connection in [*idle, *reversed(busy)][:most]:
            if connection.transport is not None:
                connection.transport.abort()


@web.middleware
async def _noted(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Note which connections have a request that is being answered."""
    serving = request.app[_SERVING]
    serving.add(request.protocol)
    try:
        return await handler(request)
    finally:
        serving.discard(request.protocol)


class _RequestLog(logging.LoggerAdapter[logging.Logger]):
    """Limits what aiohttp logs about its connections. A request that is not HTTP, or too long, is
    the sender's mistake: it is logged in one line without a traceback. Nor is the traceback kept,
    in a cycle of error, frame and connection."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger)
        self._limited = LimitedLog(logger)

    def exception(self, msg: object, *args: object, **kwargs: Any) -> None:
        error = kwargs.get("exc_info")
        if isinstance(error, HttpProcessingError):
            error.__traceback__ = None
            remote = args[0] if args else "a client"
            self._limited.warning("request from %s refused: %s", remote, error.message)
        else:
            super().exception(msg, *args, **kwargs)

    def debug(self, msg: object, *args: object, **kwargs: Any) -> None:
        error = kwargs.pop("exc_info", None)
        if isinstance(error, BaseException):
            error.__traceback__ = None
        super().debug(msg, *args, **kwargs)


def make_app(services: Services) -> web.Application:
    """Assemble the dashboard."""
    app = web.Application(
        middlewares=[_noted, _guard(services), _some_at_a_time(), _errors(services)],
        client_max_size=_MOST_BYTES,
    )
    app[_SERVING] = set()
    app.add_routes([*Pages(services).routes(), *Forms(services).routes()])
    for name, kind in _FILES.items():
        app.router.add_get(f"/static/{name}", _file(name, kind))

    async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        response.headers.pop("Server", None)

    app.on_response_prepare.append(add_headers)
    return app


def _file(name: str, kind: str) -> Handler:
    content = files("pocketmq.dashboard").joinpath("static", name).read_bytes()

    async def send(request: web.Request) -> web.Response:
        return web.Response(body=content, content_type=kind, charset="utf-8")

    return send


def _guard(services: Services) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not is_own_host(request.headers.get("Host", ""), services.hosts):
            return web.Response(
                status=HTTPStatus.MISDIRECTED_REQUEST,
                text="This dashboard is not reached under that name. Use its IP address, or start "
                "it with --allow-host NAME.\n",
            )
        if request.method not in ("GET", "HEAD"):
            if refused := _refusal_of_body(request):
                return refused
            try:
                async with asyncio.timeout(_FORM_SECONDS):
                    token = (await request.post()).get("token", "")
            except TimeoutError:
                return web.Response(status=HTTPStatus.REQUEST_TIMEOUT)
            cookie = request.cookies.get(services.cookie, "")
            if (
                not isinstance(token, str)
                or not services.tokens.fits(token, cookie)
                or not is_own_origin(request.headers, request.headers["Host"])
            ):
                return _error(
                    services,
                    request,
                    HTTPStatus.FORBIDDEN,
                    "The form is out of date",
                    "Open the page again, and send the form once more.",
                )
        return await handler(request)

    return guard


def _refusal_of_body(request: web.Request) -> web.Response | None:
    """Refuse a body that no browser sends for a form of the dashboard, before it is read."""
    if request.content_length is None:
        status = HTTPStatus.LENGTH_REQUIRED
    elif request.content_length > _MOST_BYTES:
        status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    elif request.content_length and request.content_type != _FORM_TYPE:
        status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    else:
        return None
    return web.Response(status=status, text=f"{status.phrase}\n")


def _some_at_a_time() -> Middleware:
    """Make further pages wait, so that many visitors do not send the cluster all their requests at
    once. Tails and downloads, which last as long as their readers take, have their own limits."""
    gate = asyncio.Semaphore(_MOST_PAGES)

    @web.middleware
    async def some(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path.endswith(TAIL_EVENTS) or request.path == BODY:
            return await handler(request)
        async with gate:
            return await handler(request)

    return some


def _errors(services: Services) -> Middleware:
    limited = LimitedLog(log)

    @web.middleware
    async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            error.__traceback__ = None  # see _RequestLog
            title = HTTPStatus(error.status).phrase.capitalize()
            text = error.text if error.status != 404 or error.text != "404: Not Found" else None
            return _error(services, request, error.status, title, text or "There is no such page.")
        except RemotingError as error:
            # The second line of an official server is the address of a page.
            text = (error.remark or str(error)).partition("\n")[0]
            status, title = _of(error)
            near = None
            if isinstance(error, TopicNotExist | NoRouteInfo):
                topic = request.match_info.get("topic") or request.query.get("topic", "")
                admin = services.viewer(request).admin
                told = topic and await missing_topic(admin, topic.strip())
                if told:
                    text, near = told
            return _error(services, request, status, title, text, near)
        except ConnectionResetError:
            raise
        except Exception:
            limited.exception("page %s failed", request.path)
            return _error(
                services,
                request,
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "This page failed",
                "The log of the dashboard has the reason.",
            )

    return errors


def _of(error: RemotingError) -> tuple[int, str]:
    """Return the status and the title for an error of the cluster."""
    if isinstance(error, NoPermission):
        return HTTPStatus.FORBIDDEN, "No permission"
    if isinstance(error, TopicNotExist | NoRouteInfo):
        return HTTPStatus.NOT_FOUND, "No such topic"
    if isinstance(error, SubscriptionGroupNotExist):
        return HTTPStatus.NOT_FOUND, "No such consumer group"
    if isinstance(error, NoNameServer | RemotingConnectError) or is_silence(error):
        return HTTPStatus.SERVICE_UNAVAILABLE, "The cluster does not answer"
    return HTTPStatus.BAD_GATEWAY, "The cluster refused the request"


def _error(
    services: Services,
    request: web.Request,
    status: int,
    title: str,
    text: str,
    near: str | None = None,
) -> web.Response:
    """`near`: a topic that may be the intended one."""
    unreachable = status == HTTPStatus.SERVICE_UNAVAILABLE
    return services.page(
        request,
        "error.html",
        {"status": int(status), "title": title, "text": text, "near": near},
        status=status,
        refresh=REFRESH if unreachable and request.method == "GET" else 0,
    )
