"""The pages that show something: each calls its view, and renders the result."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote

import msgspec
from aiohttp import ClientConnectionResetError, web

from pocketmq.client.admin import Admin
from pocketmq.client.errors import InvalidMessage, InvalidName
from pocketmq.dashboard.body_preview import Form
from pocketmq.dashboard.chart import Chart, Series, line_chart
from pocketmq.dashboard.history import History, Span
from pocketmq.dashboard.services import REFRESH, Services
from pocketmq.dashboard.tail import TooManyTails
from pocketmq.dashboard.views import messages
from pocketmq.dashboard.views.clients import clients_view
from pocketmq.dashboard.views.cluster import cluster_view
from pocketmq.dashboard.views.dead_letters import dead_letter_groups, dead_letter_view
from pocketmq.dashboard.views.groups import group_view, groups_view
from pocketmq.dashboard.views.listing import Listing
from pocketmq.dashboard.views.topics import topic_view, topics_view
from pocketmq.dashboard.wording import time_of
from pocketmq.message.message import MessageQueue

E = TypeVar("E", Span, Form)

#: The suffix of the address of a tail's events.
TAIL_EVENTS: Final = "/tail/events"
#: The address of the bodies of messages.
BODY: Final = "/message/body"
#: Downloads of bodies at a time: each has its body in memory until it is read.
MOST_DOWNLOADS: Final = 4
_CHUNK: Final = 256 * 1024
#: The time spans of charts, in seconds.
_LENGTHS: Final = {Span.HOUR: 3600.0, Span.DAY: 86400.0}
#: Widths and heights of charts: for wide windows, and for phones.
_SIZES: Final = ((880, 220), (340, 180))
#: Topics that a form offers.
_MOST_OFFERED: Final = 500
_MOST_CHARACTERS: Final = 1024
#: Digits of an offset: all such numbers fit into 63 bits.
_MOST_DIGITS: Final = 18


class _ListView(Protocol):
    """A page of the items with `text` in their names; `all`: including those usually hidden."""

    async def __call__(
        self, admin: Admin, history: History, *, text: str, all: bool, page: int
    ) -> Listing[Any]: ...


class Pages:
    """Handlers of GET."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._downloads = 0

    def routes(self) -> list[web.RouteDef]:
        """Return every page with its address."""
        return [
            web.get("/", self.cluster),
            web.get("/topics", self.topics),
            web.get("/topics/{topic}", self.topic),
            web.get("/topics/{topic}/tail", self.tail),
            web.get("/topics/{topic}" + TAIL_EVENTS, self.tail_events),
            web.get("/groups", self.groups),
            web.get("/groups/{group}", self.group),
            web.get("/messages", self.messages),
            web.get("/message", self.message),
            web.get(BODY, self.body),
            web.get("/dead-letters", self.dead_letter_groups),
            web.get("/dead-letters/{group}", self.dead_letters),
            web.get("/clients", self.clients),
        ]

    async def cluster(self, request: web.Request) -> web.Response:
        """Brokers, and problems that need attention."""
        services = self._services
        view = await cluster_view(services.viewer(request).admin, services.history)
        values = {"view": view, "sampling": services.sampler.problem}
        return services.page(request, "cluster.html", values, refresh=REFRESH)

    async def topics(self, request: web.Request) -> web.Response:
        """A list of topics."""
        return await self._listing(request, topics_view, "topics.html")

    async def _listing(self, request: web.Request, view: _ListView, template: str) -> web.Response:
        services = self._services
        text, all, page = _text(request, "q"), "all" in request.query, _page(request)
        listing = await view(
            services.viewer(request).admin, services.history, text=text, all=all, page=page
        )
        values = {"listing": listing, "q": text, "all": all}
        return services.page(request, template, values, refresh=REFRESH)

    async def topic(self, request: web.Request) -> web.Response:
        """One topic."""
        services = self._services
        span = _choice(Span, request.query.get("span")) or Span.HOUR
        view = await topic_view(
            services.viewer(request).admin, services.history, request.match_info["topic"], span
        )
        points = [(point.time, point.arriving) for point in view.points]
        values = {
            "view": view,
            "span": span.value,
            "charts": _charts([Series("messages in per second", "in", points)], span),
        }
        return services.page(request, "topic.html", values, refresh=REFRESH)

    async def groups(self, request: web.Request) -> web.Response:
        """A list of consumer groups."""
        return await self._listing(request, groups_view, "groups.html")

    async def group(self, request: web.Request) -> web.Response:
        """One consumer group."""
        services = self._services
        span = _choice(Span, request.query.get("span")) or Span.HOUR
        view = await group_view(
            services.viewer(request).admin, services.history, request.match_info["group"], span
        )
        lag = [(point.time, float(point.lag)) for point in view.points]
        arriving = [(point.time, point.arriving) for point in view.points]
        consuming = [(point.time, point.consuming) for point in view.points]
        values = {
            "view": view,
            "span": span.value,
            "lag_charts": _charts([Series("lag", "lag", lag)], span),
            "rate_charts": _charts(
                [Series("arriving", "in", arriving), Series("consumed", "out", consuming)], span
            ),
        }
        return services.page(request, "group.html", values, refresh=REFRESH)

    async def clients(self, request: web.Request) -> web.Response:
        """The clients that are connected."""
        services = self._services
        text = _text(request, "q")
        listing = await clients_view(services.viewer(request).admin, text=text, page=_page(request))
        values = {"listing": listing, "q": text}
        return services.page(request, "clients.html", values, refresh=REFRESH)

    async def messages(self, request: web.Request) -> web.Response:
        """A search form for messages, and the results."""
        services = self._services
        admin = services.viewer(request).admin
        topic, by, value = (_text(request, name) for name in ("topic", "by", "value"))
        by = by or "newest"
        found, problem = None, None
        try:
            if by == "id" and value:
                found = await messages.by_id(admin, topic, value)
            elif not topic:
                problem = "Name a topic." if by != "newest" or value else None
            elif by == "newest" and value:
                problem = "Choose whether that is a key, an id, or a time."
            elif by == "newest":
                found = await messages.newest(admin, topic)
            elif not value:
                problem = "Say what to look for."
            elif by == "key":
                found = await messages.by_key(admin, topic, value)
            elif by == "time":
                found = await messages.from_time(admin, topic, time_of(value))
        except (InvalidName, InvalidMessage) as error:
            problem = error.remark
        except ValueError as error:
            problem = str(error)
        values = {
            "topic": topic,
            "by": by,
            "value": value,
            "found": found,
            "problem": problem,
            "offered": (await admin.topics())[:_MOST_OFFERED],
        }
        return services.page(
            request, "messages.html", values, status=200 if problem is None else 400
        )

    async def message(self, request: web.Request) -> web.Response:
        """One message with its body."""
        services = self._services
        queue, offset = _place(request)
        form = _choice(Form, request.query.get("as"))
        view = await messages.message_view(services.viewer(request).admin, queue, offset, form)
        if view is None:
            raise web.HTTPNotFound(text="This message is not stored, or not any more.")
        group = _text(request, "group")
        values = {
            "view": view,
            "group": group,
            "section": "/dead-letters" if group else "/messages",
        }
        return services.page(request, "message.html", values)

    async def body(self, request: web.Request) -> web.StreamResponse:
        """The body of a message as a download: a browser must not render it."""
        queue, offset = _place(request)
        if self._downloads >= MOST_DOWNLOADS:
            raise web.HTTPServiceUnavailable(
                text="As many bodies are being downloaded as may be. Try again in a moment."
            )
        self._downloads += 1
        try:
            admin = self._services.viewer(request).admin
            message = await messages.message_at(admin, queue, offset)
            if message is None:
                raise web.HTTPNotFound(text="This message is not stored, or not any more.")
            return await self._download(request, queue, offset, message.body)
        finally:
            self._downloads -= 1

    async def _download(
        self, request: web.Request, queue: MessageQueue, offset: int, body: bytes
    ) -> web.StreamResponse:
        name = quote(f"{queue.topic}-{queue.broker_name}-{queue.queue_id}-{offset}.bin")
        response = web.StreamResponse(
            headers={
                "Content-Type": "application/octet-stream",
                "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
            }
        )
        response.content_length = len(body)
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        for at in range(0, len(body), _CHUNK):
            if not await self._written(request, response, body[at : at + _CHUNK]):
                break
        return response

    async def dead_letter_groups(self, request: web.Request) -> web.Response:
        """The groups that have dead letters."""
        services = self._services
        text = _text(request, "q")
        listing = await dead_letter_groups(
            services.viewer(request).admin, text=text, page=_page(request)
        )
        values = {"listing": listing, "q": text}
        return services.page(request, "dead_letter_groups.html", values, refresh=REFRESH)

    async def dead_letters(self, request: web.Request) -> web.Response:
        """The dead letters of one group."""
        services = self._services
        all = "all" in request.query
        view = await dead_letter_view(
            services.viewer(request).admin, request.match_info["group"], all=all
        )
        return services.page(request, "dead_letters.html", {"view": view, "all": all})

    async def tail(self, request: web.Request) -> web.Response:
        """The page of a tail, which is filled by the events."""
        topic = request.match_info["topic"]
        await self._services.viewer(request).admin.topic_route(topic)
        values = {"topic": topic, "tags": _text(request, "tags")}
        return self._services.page(request, "tail.html", values)

    async def tail_events(self, request: web.Request) -> web.StreamResponse:
        """The arriving messages, as server-sent events."""
        tails = self._services.tails
        access = self._services.viewer(request).access
        topic, tags = request.match_info["topic"], _text(request, "tags")
        try:
            async with tails.watch(access, topic, tags) as consumer:
                response = web.StreamResponse(
                    headers={"Content-Type": "text/event-stream; charset=utf-8"}
                )
                await response.prepare(request)
                if not await self._written(request, response, _event("open", b"{}")):
                    return response
                async for part in tails.parts(consumer):
                    event = _event("part", msgspec.json.encode(part))
                    if not await self._written(request, response, event):
                        return response
                await self._written(request, response, _event("end", b"{}"))
                return response
        except TooManyTails:
            raise web.HTTPServiceUnavailable(
                text="As many live tails are open as may be. Close one first."
            ) from None

    async def _written(
        self, request: web.Request, response: web.StreamResponse, data: bytes
    ) -> bool:
        """Write, and wait until the reader has taken most of it; False if it is gone. One that
        takes too long is dropped: it would hold its place for ever."""
        if request.transport is None or request.transport.is_closing():
            return False
        try:
            async with asyncio.timeout(self._services.read_timeout):
                await response.write(data)
        except ClientConnectionResetError:
            return False
        except TimeoutError:
            request.transport.abort()
            return False
        return True


def _event(name: str, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)


def _charts(series: Sequence[Series], span: Span) -> list[Chart]:
    """Return the same chart in each size; empty without values to draw."""
    charts = [
        line_chart(series, now=time.time(), longest=_LENGTHS[span], width=width, height=height)
        for width, height in _SIZES
    ]
    return [chart for chart in charts if chart is not None]


def _text(request: web.Request, name: str) -> str:
    return request.query.get(name, "").strip()[:_MOST_CHARACTERS]


def _page(request: web.Request) -> int:
    text = request.query.get("page", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 1


def _choice(kind: type[E], text: str | None) -> E | None:
    return next((each for each in kind if each.value == text), None)


def _place(request: web.Request) -> tuple[MessageQueue, int]:
    """Return the queue and the offset in the address of a message."""
    topic, broker = _text(request, "topic"), _text(request, "broker")
    queue, offset = _text(request, "queue"), _text(request, "offset")
    return place_of(topic, broker, queue, offset)


def place_of(topic: str, broker: str, queue: str, offset: str) -> tuple[MessageQueue, int]:
    """Return the queue and the offset in these strings. Raises HTTPBadRequest."""
    numbers = [text for text in (queue, offset) if text.isascii() and text.isdecimal()]
    if not topic or not broker or len(numbers) < 2 or max(map(len, numbers)) > _MOST_DIGITS:
        raise web.HTTPBadRequest(
            text="A message is named by its topic, broker, queue and offset, the last two of which "
            "are whole numbers."
        )
    return MessageQueue(topic, broker, int(queue)), int(offset)
