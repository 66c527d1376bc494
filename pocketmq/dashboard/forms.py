"""Handlers that change something: logging in and out, and resending dead letters."""

from __future__ import annotations

import logging
import math
import secrets
from typing import Final

from aiohttp import web

from pocketmq.client.errors import RemotingError
from pocketmq.dashboard.login import Way, WrongLogin
from pocketmq.dashboard.pages import place_of
from pocketmq.dashboard.rendering import link, segment
from pocketmq.dashboard.services import Services, Viewer
from pocketmq.dashboard.sessions import LIFETIME, Session
from pocketmq.dashboard.views.dead_letters import MOST_RESENT, Resent, resend_left, resend_one
from pocketmq.limited_log import one_line
from pocketmq.message.limits import DLQ_PREFIX

log = logging.getLogger("pocketmq.audit")

_MOST_CHARACTERS: Final = 1024


class Forms:
    """Handlers of POST, and the login form. The guard has checked the origin of a form."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[web.RouteDef]:
        """Return every form with its address."""
        return [
            web.get("/login", self.login),
            web.post("/login", self.log_in),
            web.post("/logout", self.log_out),
            web.post("/dead-letters/{group}/resend", self.resend),
        ]

    async def login(self, request: web.Request) -> web.Response:
        """The login form."""
        return await self._login_page(request, request.query.get("to", "/"))

    async def log_in(self, request: web.Request) -> web.Response:
        """Check a login form, and start a session."""
        services = self._services
        form = await request.post()
        user, secret, to = (_field(form, name) for name in ("user", "secret", "to"))
        address = request.remote or ""
        wait = services.limit.wait(address)
        if wait > 0:
            seconds = math.ceil(wait)
            response = await self._login_page(
                request, to, f"Too many attempts. Try again in {seconds} s.", status=429
            )
            response.headers["Retry-After"] = str(seconds)
            return response
        # Count the attempt before the check, so that concurrent attempts count too.
        services.limit.failed(address)
        try:
            name, access = await services.login.log_in(user, secret)
        except WrongLogin:
            log.info("dashboard: login of %s from %s: refused", one_line(user[:80]), address)
            return await self._login_page(
                request, to, "Wrong user or secret key." if user else "Wrong password.", status=403
            )
        services.limit.succeeded(address)
        old = services.viewer(request).session
        if old is not None:
            await services.sessions.end(old)
        session = await services.sessions.begin(name, access)
        log.info("dashboard: login of %s from %s: success", one_line(name), address)
        response = web.Response(status=303, headers={"Location": _own_address(to)})
        self._set_cookie(request, response, session.id, max_age=int(LIFETIME))
        return response

    async def log_out(self, request: web.Request) -> web.Response:
        """End the session."""
        session = self._services.viewer(request).session
        if session is not None:
            await self._services.sessions.end(session)
        response = web.Response(status=303, headers={"Location": "/"})
        response.del_cookie(self._services.cookie, path="/")
        return response

    async def resend(self, request: web.Request) -> web.Response:
        """Resend one dead letter of a group, or all that are left."""
        viewer, session = self._logged_in(request)
        group = request.match_info["group"]
        form = await request.post()
        if _field(form, "offset"):
            queue, offset = place_of(
                f"{DLQ_PREFIX}{group}",
                _field(form, "broker"),
                _field(form, "queue"),
                _field(form, "offset"),
            )
            sending = resend_one(viewer.admin, group, queue, offset)
        else:
            sending = resend_left(viewer.admin, group)
        what = f"resend of dead letters of group {one_line(group)} by {one_line(session.user)}"
        try:
            resent = await sending
        except RemotingError as error:
            reason = one_line(error.remark)
            log.info("dashboard: %s from %s: refused: %s", what, request.remote, reason)
            raise
        log.info("dashboard: %s from %s: %d sent", what, request.remote, resent.sent)
        to = link(f"/dead-letters/{segment(group)}", notice=_told(resent))
        return web.Response(status=303, headers={"Location": to})

    def _logged_in(self, request: web.Request) -> tuple[Viewer, Session]:
        viewer = self._services.viewer(request)
        if viewer.session is None:
            raise web.HTTPForbidden(text="Log in to change something.")
        return viewer, viewer.session

    async def _login_page(
        self, request: web.Request, to: str, problem: str = "", *, status: int = 200
    ) -> web.Response:
        services = self._services
        cookie = request.cookies.get(services.cookie) or secrets.token_urlsafe(32)
        way = await services.login.way()
        values = {"way": way.value, "to": _own_address(to), "problem": problem}
        if way is Way.NONE:
            return services.page(request, "login.html", values)
        response = services.page(request, "login.html", values, status=status, cookie=cookie)
        self._set_cookie(request, response, cookie)
        return response

    def _set_cookie(
        self,
        request: web.Request,
        response: web.Response,
        value: str,
        *,
        max_age: int | None = None,
    ) -> None:
        response.set_cookie(
            self._services.cookie,
            value,
            max_age=max_age,
            path="/",
            httponly=True,
            samesite="Strict",
            # Set by a proxy in front of the dashboard, which has no TLS itself.
            secure=request.headers.get("X-Forwarded-Proto") == "https",
        )


def _field(form: object, name: str) -> str:
    value = form.get(name, "")  # type: ignore[attr-defined]
    return value[:_MOST_CHARACTERS] if isinstance(value, str) else ""


def _own_address(to: str) -> str:
    """Return the address to go to after a login, if it belongs to the dashboard; else the first
    page."""
    is_own = to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable()
    return to if is_own else "/"


def _told(resent: Resent) -> str:
    if not resent.sent:
        return "No dead letter was sent again: it is not stored any more, or none is left."
    if resent.refused:
        refused = (
            "1 that the broker refuses stays"
            if resent.refused == 1
            else (f"{resent.refused} that the broker refuses stay")
        )
        return (
            f"{resent.sent} of the dead letters were sent to the group again. {refused} in this "
            "list, with all after it in the same queue."
        )
    if resent.is_listed:
        return (
            "1 dead letter was sent to the group again. It stays in this list, because older ones "
            "of its queue are left."
        )
    if resent.sent == 1:
        return "1 dead letter was sent to the group again."
    more = " There may be more: click again." if resent.sent == MOST_RESENT else ""
    return f"{resent.sent} dead letters were sent to the group again.{more}"
