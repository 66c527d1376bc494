"""The rules of one member, case by case; `test_simulation` has what comes of them together."""

from __future__ import annotations

import pytest

from pocketmq.broker.controller.ha_frames import (
    BadFrame,
    Handshake,
    MasterEpochs,
    Report,
    Transfer,
)
from pocketmq.broker.controller.master_link import UnfitMaster
from pocketmq.broker.controller.replica import (
    AskForSet,
    Drop,
    Follow,
    Lead,
    Replica,
    Role,
    RoleRefused,
    RoleTold,
    StayMaster,
)
from pocketmq.broker.controller.settings import ReplicaSettings
from pocketmq.broker.controller.slave_link import IN_TURN_MS, SlaveLink, UnfitSlave
from pocketmq.store.epochs import Epochs

from .simulation import FILE_SIZE, SimLog

ME, OTHER, THIRD = 1, 2, 3
ALL_ACK = ReplicaSettings(all_ack=True, batch_size=100)
NOW = 1_000_000


def log_of(count: int = 0) -> SimLog:
    """A log with so many records of 10 bytes."""
    log = SimLog()
    for n in range(count):
        log.put(b"%09d" % n)
    return log


def told(
    master: int = ME, epoch: int = 1, members: tuple[int, ...] = (ME,), set_epoch: int = 1
) -> RoleTold:
    return RoleTold(master, f"{master}:1", epoch, frozenset(members), set_epoch)


def master(
    log: SimLog | None = None,
    settings: ReplicaSettings = ALL_ACK,
    members: tuple[int, ...] = (ME,),
    epochs: Epochs | None = None,
) -> Replica:
    epochs = epochs or Epochs()
    replica = Replica(settings, log or log_of(), epochs, ME)
    replica.told(told(epoch=max(epochs.last_epoch, 0) + 1, members=members), NOW)
    return replica


def join(replica: Replica, slave: int = OTHER, at: int | None = 0, **flags: bool) -> SlaveLink:
    """A slave's connection that has reported, unless `at` is None."""
    link = replica.accepted(NOW)
    assert link is not None
    replica.greeted(link, Handshake(slave, **flags), NOW)
    if at is not None:
        replica.reported(link, Report(at), NOW)
    return link


def slave(log: SimLog, epochs: Epochs | None = None, confirmed: int = 0) -> Replica:
    replica = Replica(ALL_ACK, log, epochs or Epochs(), ME, confirmed=confirmed)
    replica.told(told(OTHER, epoch=9), NOW)
    return replica


# --- roles ------------------------------------------------------------------------------------


def test_the_first_role() -> None:
    log = log_of(3)
    replica = Replica(ALL_ACK, log, Epochs([(1, 0)]), ME)
    assert replica.role is Role.FENCED
    assert replica.refusal
    assert replica.told(told(epoch=2), NOW) == [Lead(2)]
    assert not replica.refusal
    assert log.epochs == Epochs([(1, 0), (2, 30)])


def test_an_older_role_is_not_taken() -> None:
    replica = slave(log_of())
    assert replica.told(told(epoch=9), NOW) == []
    assert replica.told(told(epoch=8), NOW) == []
    assert replica.role is Role.SLAVE
    assert replica.told(told(epoch=10), NOW) == [Lead(10)]


def test_the_same_master_in_a_new_reign() -> None:
    replica = master(log_of(1), members=(ME, OTHER))
    join(replica, at=10)
    assert replica.told(told(epoch=2, set_epoch=2), NOW)[0] == StayMaster(2)
    assert len(replica.links) == 1
    assert replica.set.members == {ME}


def test_a_slave_follows_another_master_or_another_address() -> None:
    replica = slave(log_of())
    assert replica.told(told(OTHER, epoch=10), NOW) == []  # nothing has changed
    moved = RoleTold(OTHER, "elsewhere:1", 11)
    assert replica.told(moved, NOW) == [Follow(OTHER, "elsewhere:1", 11)]
    assert replica.told(told(THIRD, epoch=12), NOW) == [Follow(THIRD, "3:1", 12)]


def test_a_master_that_becomes_slave_drops_its_slaves() -> None:
    replica = master()
    link = join(replica)
    assert replica.told(told(OTHER, epoch=2), NOW) == [Drop(link), Follow(OTHER, "2:1", 2)]
    assert replica.accepted(NOW) is None


def test_a_controller_that_has_lost_its_data_is_refused() -> None:
    replica = Replica(ALL_ACK, log_of(1), Epochs([(7, 0)]), ME)
    with pytest.raises(RoleRefused, match="messages of epoch 7"):
        replica.told(told(epoch=1), NOW)
    assert replica.role is Role.FENCED


def test_a_reign_that_a_restart_ended_is_not_gone_on_with() -> None:
    replica = Replica(ALL_ACK, log_of(2), Epochs([(3, 0)]), ME)
    with pytest.raises(RoleRefused, match="a restart ended"):
        replica.told(told(epoch=3), NOW)
    assert replica.told(told(epoch=4), NOW) == [Lead(4)]


def test_a_new_reign_takes_the_place_of_one_without_bytes() -> None:
    replica = Replica(ALL_ACK, log_of(2), Epochs([(1, 0), (2, 20)]), ME)
    replica.told(told(epoch=3), NOW)
    assert replica.epochs == Epochs([(1, 0), (3, 20)])


def test_the_log_of_a_single_broker_is_of_epoch_0() -> None:
    replica = Replica(ALL_ACK, log_of(2), Epochs(), ME)
    replica.told(told(epoch=1), NOW)
    assert replica.epochs == Epochs([(0, 0), (1, 20)])


def test_a_torn_record_is_cut_before_a_reign() -> None:
    log = log_of(2)
    log.append(memoryview(b"\x0a12"))
    replica = Replica(ALL_ACK, log, Epochs([(1, 0)]), ME)
    replica.told(told(epoch=2), NOW)
    assert (log.end, replica.epochs) == (20, Epochs([(1, 0), (2, 20)]))


# --- the SyncStateSet -------------------------------------------------------------------------


def test_a_slave_that_has_everything_joins_the_set() -> None:
    replica = master(log_of(2))
    link = join(replica, at=None)
    assert replica.reported(link, Report(10), NOW) == []
    orders = replica.reported(link, Report(20), NOW)
    assert orders == [AskForSet(frozenset({ME, OTHER}), 1)]
    assert replica.set.needed == {ME, OTHER}
    assert replica.set_answered(((ME, OTHER), 2), NOW) == []
    assert replica.set.members == {ME, OTHER}


def test_a_learner_never_joins() -> None:
    replica = master(log_of(2))
    assert replica.set.members == {ME}
    link = join(replica, at=20, learner=True)
    assert link.acked == 20
    assert replica.tick(NOW) == []


def test_one_request_at_a_time() -> None:
    replica = master()
    join(replica, OTHER)
    join(replica, THIRD)
    assert replica.tick(NOW) == []  # the first one is on its way
    orders = replica.set_answered(((ME, OTHER), 2), NOW)
    assert orders == [AskForSet(frozenset({ME, OTHER, THIRD}), 2)]


def test_a_slave_that_the_controller_refuses_holds_up_nobody() -> None:
    """Any process at an allowed address can say that it has everything, and leave."""
    log = log_of()
    replica = master(log)
    link = join(replica)
    assert replica.set.needed == {ME, OTHER}
    replica.closed(link, NOW)
    log.put(b"123456789")
    assert replica.set_refused() == []
    assert replica.set.needed == {ME}
    assert replica.replicated(10)
    assert replica.confirmed == 10


def test_a_refusal_says_nothing_of_an_earlier_request_without_an_answer() -> None:
    log = log_of()
    replica = master(log)
    join(replica)
    replica.set_answered(None, NOW)
    assert replica.tick(NOW) == [AskForSet(frozenset({ME, OTHER}), 1)]
    assert replica.set_refused() == []
    assert replica.set.needed == {ME, OTHER}


def test_an_unanswered_request_is_repeated_and_all_that_may_be_in_force_acknowledge() -> None:
    log = log_of()
    replica = master(log)
    link = join(replica)
    log.put(b"123456789")
    assert replica.set_answered(None, NOW) == []
    assert replica.set.needed == {ME, OTHER}
    assert not replica.replicated(10)
    replica.reported(link, Report(10), NOW)
    assert replica.replicated(10)


def test_a_member_leaves_with_its_connection() -> None:
    replica = master(members=(ME, OTHER))
    link = join(replica)
    assert replica.closed(link, NOW + 10_000) == [AskForSet(frozenset({ME}), 1)]
    assert replica.set.needed == {ME, OTHER}


def test_a_member_that_falls_behind_leaves() -> None:
    log = log_of()
    replica = master(log, members=(ME, OTHER))
    link = join(replica)
    log.put(b"123456789")
    replica.next_transfer(link, NOW)
    assert replica.tick(NOW + ALL_ACK.most_behind) == []
    assert replica.tick(NOW + ALL_ACK.most_behind + 1) == [AskForSet(frozenset({ME}), 1)]


def test_a_member_that_never_connected_leaves_after_a_while() -> None:
    replica = master(members=(ME, OTHER))
    assert replica.tick(NOW + ALL_ACK.first_check - 1) == []
    assert replica.tick(NOW + ALL_ACK.first_check) == [AskForSet(frozenset({ME}), 1)]


def test_a_silent_slave_is_dropped() -> None:
    replica = master(members=(ME, OTHER))
    link = join(replica)
    later = NOW + ALL_ACK.housekeeping_interval + 1
    assert replica.tick(later) == [Drop(link), AskForSet(frozenset({ME}), 1)]


def test_a_nearly_equal_slave_joins_under_load() -> None:
    """It does not have the last message yet; sends wait for it from now on."""
    log = log_of(2)
    replica = master(log)
    link = join(replica, at=None)
    replica.reported(link, Report(10), NOW)
    replica.next_transfer(link, NOW)
    log.put(b"123456789")
    assert replica.reported(link, Report(20), NOW) == []
    assert not replica.replicated(30)
    log.put(b"123456789")
    assert replica.reported(link, Report(30), NOW) == [AskForSet(frozenset({ME, OTHER}), 1)]


# --- confirmOffset and acknowledgements -------------------------------------------------------


def test_the_confirm_offset_is_that_of_the_last_member() -> None:
    log = log_of(3)
    replica = master(log, members=(ME, OTHER, THIRD))
    other = join(replica, OTHER, at=20)
    assert replica.confirmed == 0  # THIRD is not connected
    third = join(replica, THIRD, at=None)
    assert replica.confirmed == 0  # and has not reported
    replica.reported(third, Report(10), NOW)
    assert replica.confirmed == 10
    replica.reported(third, Report(30), NOW)
    assert (replica.confirmed, replica.replicated(20), replica.replicated(21)) == (20, True, False)
    replica.closed(other, NOW)
    assert replica.confirmed == 20


def test_alone_everything_is_confirmed() -> None:
    assert master(log_of(3)).confirmed == 30


@pytest.mark.parametrize(("copies", "enough"), [(1, True), (2, True), (3, False)])
def test_without_all_ack_copies_are_counted(copies: int, enough: bool) -> None:
    replica = master(log_of(1), ReplicaSettings(in_sync_replicas=copies))
    join(replica, OTHER, at=10)
    assert replica.replicated(10) is enough
    assert replica.confirmed == 10


def test_too_small_a_set_refuses_and_acknowledges_nothing() -> None:
    replica = master(log_of(1), ALL_ACK._replace(min_in_sync=2))
    assert replica.refusal == "in-sync replicas not enough"
    assert not replica.replicated(0)


def test_of_two_connections_of_one_slave_the_newer_counts() -> None:
    replica = master(log_of(1), members=(ME, OTHER))
    old = join(replica, at=10)
    link = replica.accepted(NOW)
    assert link is not None
    answer, orders = replica.greeted(link, Handshake(OTHER), NOW)
    assert answer is not None
    assert orders == [Drop(old)]
    assert not replica.replicated(10)
    assert replica.closed(old, NOW) == []


def test_two_slaves_with_one_id_take_each_others_place() -> None:
    replica = master(log_of(1), members=(ME, OTHER))
    links = [join(replica)]
    now = NOW
    for pause in (0, 1_000, IN_TURN_MS + 1, 1_000):
        now += pause
        link = replica.accepted(now)
        assert link is not None
        replica.greeted(link, Handshake(OTHER), now)
        links.append(link)
    # The first one that replaces another may be the slave itself, which lost its connection.
    assert [link.in_turn for link in links] == [False, False, True, False, True]


# --- feeding a slave --------------------------------------------------------------------------


def transfers(replica: Replica, link: SlaveLink) -> list[tuple[int, int, int]]:
    found = []
    while (head := replica.next_transfer(link, NOW)) is not None:
        found.append((head.offset, head.size, head.epoch))
    return found


def test_frames_cross_neither_files_nor_epochs_nor_the_batch_size() -> None:
    log = log_of(30)
    replica = master(log, epochs=Epochs([(0, 0), (1, 150)]))
    link = join(replica)
    sent = transfers(replica, link)
    assert sum(size for _, size, _ in sent) == log.end
    assert sent[:4] == [(0, 100, 0), (100, 50, 0), (150, 100, 1), (250, 6, 1)]
    assert sent[4][0] == FILE_SIZE


def test_nothing_is_sent_before_the_first_report() -> None:
    replica = master(log_of(1))
    link = join(replica, at=None)
    assert replica.next_transfer(link, NOW + 100_000) is None


def test_heartbeats_when_idle() -> None:
    replica = master(log_of(1))
    link = join(replica, at=10)
    assert replica.next_transfer(link, NOW + 5_000) is None
    assert replica.next_transfer(link, NOW + 5_001) == Transfer(10, 0, 1, 10, 10)
    empty = master()
    link = join(empty)
    assert empty.next_transfer(link, NOW + 5_001) == Transfer(-1, 0, 1, 0, 0)


def test_an_empty_slave_may_want_the_last_file_only() -> None:
    log = log_of(60)
    replica = master(log, epochs=Epochs([(0, 0)]))
    link = join(replica, from_last_file=True)
    assert transfers(replica, link)[0][0] == 2 * FILE_SIZE


@pytest.mark.parametrize(
    "settings",
    [ALL_ACK, ReplicaSettings(in_sync_replicas=2, batch_size=100)],
    ids=["the whole set", "two"],
)
def test_an_empty_slave_does_not_confirm_what_lies_before_its_first_file(
    settings: ReplicaSettings,
) -> None:
    """Nor after it has connected again."""
    log = log_of(60)
    start, end = 2 * FILE_SIZE, log.end
    replica = master(log, settings, members=(ME, OTHER), epochs=Epochs([(0, 0)]))
    link = join(replica, from_last_file=True)
    transfers(replica, link)
    ends = (10, start, start + 10, end)
    for _ in range(2):
        replica.reported(link, Report(end), NOW)
        assert [replica.replicated(at) for at in ends] == [False, False, True, True]
        assert replica.copies_from == start
        replica.closed(link, NOW)
        link = join(replica, at=end, from_last_file=True)
    whole = join(replica, THIRD, at=start - 1)
    replica.reported(whole, Report(end), NOW)
    assert whole.has(10)


@pytest.mark.parametrize(
    ("at", "text"), [(31, "bytes that are not from this group"), (5, "has expired")]
)
def test_a_slave_whose_log_does_not_fit_is_refused(at: int, text: str) -> None:
    log = log_of(3)
    log.begin = 10
    with pytest.raises(UnfitSlave, match=text):
        join(master(log), at=at)


def test_strangers_and_copies_are_refused() -> None:
    replica = master()
    link = replica.accepted(NOW)
    assert link is not None
    with pytest.raises(UnfitSlave, match="enableControllerMode"):
        replica.reported(link, Report(0), NOW)
    with pytest.raises(UnfitSlave, match="remove the file brokerIdentity"):
        replica.greeted(link, Handshake(ME), NOW)


def test_a_repeated_handshake_is_answered_until_the_first_report() -> None:
    replica = master()
    link = replica.accepted(NOW)
    assert link is not None
    assert replica.greeted(link, Handshake(OTHER), NOW)[0] is not None
    assert replica.greeted(link, Handshake(OTHER), NOW)[0] is not None
    replica.reported(link, Report(0), NOW)
    assert replica.greeted(link, Handshake(OTHER), NOW)[0] is None


# --- following a master -----------------------------------------------------------------------


def test_a_slave_cuts_what_the_master_does_not_have_and_reports_at_once() -> None:
    log = log_of(5)
    replica = slave(log, Epochs([(1, 0), (2, 30)]))
    link = replica.connected(NOW)
    assert link.report(NOW) is None
    answer = MasterEpochs(40, Epochs([(1, 0), (3, 30)]))
    assert link.place_to_cut(answer) == 30
    link.received(answer, NOW)
    assert (log.end, log.epochs, link.report(NOW)) == (30, Epochs([(1, 0)]), 30)
    link.received(Transfer(30, 10, 3, 30, 30), NOW)
    link.received(memoryview(b"\x0a123456789"), NOW)
    assert (replica.epochs, replica.confirmed) == (Epochs([(1, 0), (3, 30)]), 30)
    assert link.report(NOW) == 40


def test_an_empty_slave_takes_everything() -> None:
    log = log_of()
    link = slave(log).connected(NOW)
    answer = MasterEpochs(40, Epochs([(1, 0)]))
    assert link.place_to_cut(answer) is None
    link.received(answer, NOW)
    assert link.report(NOW) == 0
    link.received(Transfer(0, 0, 1, 0, 40), NOW)
    assert log.epochs == Epochs()  # it has no byte of it
    link.received(Transfer(0, 10, 1, 0, 40), NOW)
    link.received(memoryview(b"\x0a1234"), NOW)
    link.received(memoryview(b"56789"), NOW)
    assert (log.epochs, link.confirmed) == (Epochs([(1, 0)]), 10)


def test_what_is_acknowledged_is_flushed_if_that_is_wanted() -> None:
    log = log_of(2)
    replica = Replica(ALL_ACK._replace(ack_flushed=True), log, Epochs([(1, 0)]), ME)
    replica.told(told(OTHER), NOW)
    link = replica.connected(NOW)
    link.received(MasterEpochs(20, Epochs([(1, 0)])), NOW)
    log.flushed = 10
    assert link.report(NOW) is None  # the first report says where to go on
    log.flushed = 20
    assert link.report(NOW) == 20
    link.received(Transfer(20, 10, 1, 0, 20), NOW)
    link.received(memoryview(b"\x0a123456789"), NOW)
    assert link.report(NOW) is None
    log.flushed = 30
    assert link.report(NOW) == 30


@pytest.mark.parametrize(
    ("own", "confirmed", "master_epochs", "text"),
    [
        ([], 0, [(1, 0)], "none from a member of this group"),
        ([(1, 0)], 0, [(1, 5), (3, 9)], "nothing in common"),
        ([(1, 0)], 10, [(3, 0)], "nothing in common"),
    ],
)
def test_a_log_of_somebody_else_is_not_continued(
    own: list[tuple[int, int]], confirmed: int, master_epochs: list[tuple[int, int]], text: str
) -> None:
    log = log_of(2)
    link = slave(log, Epochs(own), confirmed).connected(NOW)
    with pytest.raises(UnfitMaster, match=text):
        link.received(MasterEpochs(40, Epochs(master_epochs)), NOW)
    assert log.end == 20


@pytest.mark.parametrize("confirmed", [0, 9])
def test_messages_that_nobody_else_had_give_way_to_an_empty_masters(confirmed: int) -> None:
    log = log_of(2)
    link = slave(log, Epochs([(1, 0)]), confirmed).connected(NOW)
    link.received(MasterEpochs(0, Epochs([(3, 0)])), NOW)
    assert (log.end, log.epochs) == (0, Epochs())


def joined(log: SimLog) -> Replica:
    replica = slave(log, Epochs([(1, 0)]) if log.end else None)
    replica.connected(NOW).received(MasterEpochs(1_000, Epochs([(1, 0)])), NOW)
    return replica


@pytest.mark.parametrize(
    ("count", "head", "error", "text"),
    [
        (2, Transfer(30, 5, 1, 0, 0), BadFrame, "ends at 20"),
        (0, Transfer(5, 5, 1, 0, 0), UnfitMaster, "no file of 256 bytes begins"),
        (2, Transfer(20, 237, 1, 0, 0), UnfitMaster, "passes the end of a file"),
    ],
)
def test_frames_that_do_not_fit(
    count: int, head: Transfer, error: type[Exception], text: str
) -> None:
    replica = joined(log_of(count))
    assert replica.link is not None
    with pytest.raises(error, match=text):
        replica.link.received(head, NOW)


def test_frames_out_of_order() -> None:
    link = slave(log_of()).connected(NOW)
    with pytest.raises(BadFrame, match="before the answer"):
        link.received(Transfer(0, 5, 1, 0, 0), NOW)
    link.received(MasterEpochs(0, Epochs()), NOW)
    with pytest.raises(BadFrame, match="second answer"):
        link.received(MasterEpochs(0, Epochs()), NOW)


def test_a_silent_master_is_lost() -> None:
    link = slave(log_of()).connected(NOW)
    assert not link.is_lost(NOW + ALL_ACK.housekeeping_interval)
    assert link.is_lost(NOW + ALL_ACK.housekeeping_interval + 1)
