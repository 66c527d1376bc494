"""That the benchmark of leniency compares spellings of the same thing."""

from __future__ import annotations

import pytest

from bench.leniency import Case, cases, check


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.title)
def test_all_spellings_are_understood_alike(case: Case) -> None:
    assert len({case.exact, case.capitals, case.quotes}) == 3
    check(case)


def test_another_meaning_is_found() -> None:
    heartbeat = next(case for case in cases() if case.title.startswith("heartbeat"))
    with pytest.raises(RuntimeError, match="is not understood"):
        check(heartbeat._replace(capitals=b'{"ClientID":"another"}'))
