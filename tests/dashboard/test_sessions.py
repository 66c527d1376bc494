"""Sessions, tokens in forms, and the limit of attempts."""

from __future__ import annotations

from pocketmq.dashboard.sessions import IDLE, LIFETIME, FormTokens, LoginLimit, Sessions


class Clock:
    """Seconds, set by the test."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_session_ends_when_it_is_not_used() -> None:
    clock = Clock()
    sessions = Sessions(clock=clock)
    session = await sessions.begin("root", None)
    for _ in range(3):
        clock.now += IDLE - 1
        assert sessions.find(session.id) is session
    clock.now += IDLE + 1
    assert sessions.find(session.id) is None


async def test_a_session_ends_after_its_longest_time() -> None:
    clock = Clock()
    sessions = Sessions(clock=clock)
    session = await sessions.begin("root", None)
    while clock.now + IDLE < LIFETIME:
        clock.now += IDLE
        assert sessions.find(session.id) is session
    clock.now = LIFETIME + 1
    assert sessions.find(session.id) is None


async def test_the_number_of_sessions_is_bounded() -> None:
    clock = Clock()
    sessions = Sessions(most=3, clock=clock)
    begun = []
    for _ in range(4):
        clock.now += 1
        begun.append(await sessions.begin("root", None))
        sessions.find(begun[0].id)
    assert len(sessions) == 3
    assert [sessions.find(each.id) is not None for each in begun] == [True, False, True, True]
    assert len({each.id for each in begun}) == 4
    await sessions.end_all()
    assert len(sessions) == 0


async def test_many_logins_of_one_user_end_no_session_of_another() -> None:
    clock = Clock()
    sessions = Sessions(most=3, clock=clock)
    other = await sessions.begin("orders", None)
    for _ in range(5):
        clock.now += 1
        last = await sessions.begin("eve", None)
    assert len(sessions) == 3
    assert sessions.find(other.id) is other
    assert sessions.find(last.id) is last


def test_a_token_fits_its_cookie_only() -> None:
    tokens = FormTokens()
    token = tokens.of("a")
    assert tokens.fits(token, "a")
    assert not tokens.fits(token, "b")
    assert not tokens.fits(tokens.of(""), "")
    assert not tokens.fits("", "a")
    assert not tokens.fits("\u2603", "a")
    assert not FormTokens().fits(token, "a")


def test_attempts_are_limited_for_each_address() -> None:
    clock = Clock()
    limit = LoginLimit(most=3, window=60, addresses=2, clock=clock)
    for _ in range(3):
        assert limit.wait("a") == 0
        limit.failed("a")
        clock.now += 10
    assert limit.wait("a") == 30
    assert limit.wait("b") == 0
    clock.now += 30
    assert limit.wait("a") == 0
    limit.failed("a")
    assert limit.wait("a") == 10
    limit.succeeded("a")
    assert limit.wait("a") == 0


def test_who_may_log_in_cannot_guess_for_others_without_end() -> None:
    limit = LoginLimit(most=3, window=60, addresses=2, clock=Clock())
    for _ in range(2):
        limit.failed("a")
    limit.failed("a")
    limit.succeeded("a")
    assert limit.wait("a") == 0
    limit.failed("a")
    assert limit.wait("a") > 0


def test_addresses_are_bounded() -> None:
    limit = LoginLimit(most=1, window=60, addresses=2, clock=Clock())
    for address in "abc":
        limit.failed(address)
    assert [limit.wait(address) > 0 for address in "abc"] == [False, True, True]
