"""The dashboard in the process of `pocketmq serve` or `pocketmq broker`."""

from __future__ import annotations

import argparse
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from pocketmq._extras import MissingExtra, is_installed, require
from pocketmq.cli.options import port
from pocketmq.cli.password_file import read_password
from pocketmq.dashboard.config import DEFAULT_PORT, DashboardConfig
from pocketmq.remoting.serving.listening import CannotListen
from pocketmq.remoting.settings.properties_file import ConfigError

if TYPE_CHECKING:
    import ssl

    from pocketmq.client.credentials import Credentials

log = logging.getLogger("pocketmq")


def add_dashboard_options(parser: argparse.ArgumentParser, *, on: bool) -> None:
    """Add the options of the dashboard; `on`: whether it runs by default."""
    default = f"default {DEFAULT_PORT}, or a free one if that is taken" if on else "default: none"
    parser.add_argument(
        "--dashboard-port",
        type=port,
        metavar="PORT",
        help=f"port of the dashboard on 127.0.0.1 ({default}; 0: any free one)",
    )
    if on:
        parser.add_argument("--no-dashboard", action="store_true", help="serve no dashboard")
    parser.add_argument(
        "--dashboard-password-file",
        type=Path,
        metavar="FILE",
        help="allow changes in the dashboard to users with the password in FILE",
    )


def check_dashboard_options(options: argparse.Namespace) -> None:
    """Raise ConfigError if the requested dashboard cannot run."""
    try:
        if options.dashboard_port is not None:
            require("dashboard", "--dashboard-port")
        if options.dashboard_password_file is not None:
            read_password("--dashboard-password-file", options.dashboard_password_file)
    except (MissingExtra, OSError) as error:
        raise ConfigError("dashboard", "", "", text=str(error)) from None


@contextlib.asynccontextmanager
async def running_dashboard(
    options: argparse.Namespace,
    namesrv: str,
    *,
    tls: ssl.SSLContext | None,
    inner_credentials: str,
) -> AsyncIterator[str]:
    """Run the dashboard that the options request; yield the text to print about it.

    Requests of visitors are not signed, so a cluster with authentication shows them nothing.
    `inner_credentials`, from the setting of that name, are used for the history only.

    Raises:
        PortInUse, CannotListen: the dashboard cannot listen on the port of `--dashboard-port`.
    """
    asked = options.dashboard_port is not None
    by_default = not getattr(options, "no_dashboard", True) and is_installed("dashboard")
    if not (asked or by_default):
        yield ""
        return
    # Not at the top: a server without a dashboard starts without them.
    from pocketmq.dashboard.server import Dashboard

    file = options.dashboard_password_file
    dashboard = Dashboard(
        DashboardConfig(
            namesrv=namesrv,
            port=options.dashboard_port if asked else DEFAULT_PORT,
            tls=tls or False,
            sampler_credentials=_credentials(inner_credentials),
            password=(None if file is None else read_password("--dashboard-password-file", file)),
        )
    )
    try:
        await dashboard.start(or_any_port=not asked)
    except CannotListen as error:
        if asked:
            raise
        log.warning("no dashboard: %s", error)
        yield ""
        return
    try:
        yield f"dashboard on {dashboard.url}, "
    finally:
        await dashboard.stop()


def _credentials(inner_credentials: str) -> Credentials | None:
    if not inner_credentials:
        return None
    from pocketmq.auth.settings import inner_user
    from pocketmq.client.credentials import Credentials

    user = inner_user(inner_credentials)
    return None if user is None else Credentials(user.username, user.password)
