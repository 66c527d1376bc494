"""What the handlers of the dashboard share, and what one request may do."""

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

#: Seconds between two looks of a page that keeps itself up to date.
REFRESH: Final = 5


class Viewer:
    """Whoever looks at a page: `session` is None for a visitor who has not logged in."""

    def __init__(self, access: Access, session: Session | None) -> None:
        self.access = access
        self.session = session

    @property
    def admin(self) -> Admin:
        """What the cluster is asked with."""
        return self.access.admin


class Services(msgspec.Struct, kw_only=True):
    """The parts of one dashboard; `hosts` are names under which browsers may reach it."""

    namesrv: str
    hosts: frozenset[str]
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
        """Who sends a request."""
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
        """A page; `refresh` seconds between two looks if it keeps itself up to date.

        `cookie`: of the form in it; by default that of the session.
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
    """Put together what handlers share; the name of the cookie tells dashboards apart by `port`,
    which browsers do not."""
    config = parts.config
    return Services(
        namesrv=config.namesrv,
        hosts=frozenset(name.lower().rstrip(".") for name in config.hosts),
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
