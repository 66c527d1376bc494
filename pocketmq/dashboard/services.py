"""The objects shared by the handlers of the dashboard, and the permissions of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from pocketmq.client.admin import Admin
from pocketmq.dashboard.access import Access
from pocketmq.dashboard.history import History
from pocketmq.dashboard.login import Login
from pocketmq.dashboard.parts import Parts
from pocketmq.dashboard.rendering import Renderer
from pocketmq.dashboard.sampler import Sampler
from pocketmq.dashboard.sessions import FormTokens, LoginLimit, Session, Sessions
from pocketmq.dashboard.tail import Tails

#: Seconds between two updates of a page that refreshes itself.
REFRESH: Final = 5


class Viewer:
    """The user who views a page: `session` is None for a visitor who has not logged in."""

    def __init__(self, access: Access, session: Session | None) -> None:
        self.access = access
        self.session = session

    @property
    def admin(self) -> Admin:
        """The Admin for queries to the cluster."""
        return self.access.admin


class Services(msgspec.Struct, kw_only=True):
    """The parts of one dashboard; `hosts` are names under which browsers may reach it,
    `read_timeout` as in DashboardConfig."""

    namesrv: str
    hosts: frozenset[str]
    read_timeout: float
    cookie: str
    visitor: Access
    history: History
    sampler: Sampler
    sessions: Sessions
    tokens: FormTokens
    login: Login
    limit: LoginLimit
    tails: Tails
    renderer: Renderer

    def viewer(self, request: web.Request) -> Viewer:
        """Return the sender of a request."""
        session = self.sessions.find(request.cookies.get(self.cookie, ""))
        access = self.visitor if session is None else session.access or self.visitor
        return Viewer(access, session)

    def page(
        self,
        request: web.Request,
        template: str,
        values: Mapping[str, Any] | None = None,
        *,
        status: int = 200,
        refresh: int = 0,
        cookie: str | None = None,
    ) -> web.Response:
        """Return a page; `refresh`: seconds between two updates if it refreshes itself.

        `cookie`: of its form; by default that of the session.
        """
        session = self.viewer(request).session
        holder = cookie if cookie is not None else "" if session is None else session.id
        text = self.renderer.page(
            template,
            {
                "namesrv": self.namesrv,
                "path": request.path,
                "section": request.path,
                "address": request.path_qs,
                "user": None if session is None else session.user,
                "token": self.tokens.of(holder),
                "refresh": refresh,
                "notice": request.query.get("notice", ""),
                **(values or {}),
            },
        )
        return web.Response(text=text, content_type="text/html", status=status)


def services_of(parts: Parts, *, port: int) -> Services:
    """Assemble the shared objects of the handlers. The cookie's name contains `port`, because
    browsers do not separate the cookies of different ports."""
    config = parts.config
    return Services(
        namesrv=config.namesrv,
        hosts=frozenset(name.lower().rstrip(".") for name in config.hosts),
        read_timeout=config.read_timeout,
        cookie=f"pocketmq_{port}",
        visitor=parts.visitor,
        history=parts.history,
        sampler=parts.sampler,
        sessions=Sessions(),
        tokens=FormTokens(),
        login=Login(password=config.password, open=parts.open),
        limit=LoginLimit(),
        tails=Tails(),
        renderer=Renderer(),
    )
