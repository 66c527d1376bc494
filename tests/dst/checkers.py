"""What users were promised, against what the clients saw. Each check yields what is wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from .engine.scheduler import EPOCH, MILLISECOND, SECOND
from .history import (
    WRONG_QUEUE,
    Commit,
    Delivery,
    History,
    Operation,
    Place,
    Send,
    Stored,
    reply_to,
)
from .operators import MOST_ADDED
from .plan import Plan

Check = Callable[[Plan, History], Iterator[str]]

UNFLUSHED: Final = 12 * SECOND
"""How long a message may be unwritten with ASYNC_FLUSH: flushCommitLogThoroughInterval."""
EARLY: Final = 5 * MILLISECOND
"""By how much a delayed message may seem early: times are rounded to milliseconds."""
SLACK: Final = SECOND
"""How much later than its time a request may end."""
LOCK_LIFE: Final = 60 * SECOND
RECONNECTED: Final = 4 * SECOND
"""How long after a broker's start its producers have found it."""
TOLD: Final = SECOND
"""How old a member's answer about itself may be."""
IN_TIME: Final = 4 * SECOND
"""How long before it is due a message can be recalled for sure: timers look ahead."""
UNWRITTEN: Final = 12 * SECOND
"""How long a broker may know of offsets that are not on its disk: flushConsumerOffsetInterval, and
how long it may take to write."""
REGISTERED: Final = 5 * SECOND
"""How long after a broker was drained the name servers know."""
DRAINED: Final = "4"
SILENCE: Final = 30 * SECOND
"""After which a slave knows that its master is away."""
IDLE: Final = (
    "rocketmq_processor_watermark",
    "rocketmq_storage_flush_behind",
    "rocketmq_storage_dispatch_behind",
    "rocketmq_timer_enqueue_lag",
    "rocketmq_timer_dequeue_lag",
    "rocketmq_pop_checkpoint_buffer_size",
    "rocketmq_pop_offset_buffer_size",
    "pocketmq_storage_refusing",
    "pocketmq_replication_sends_waiting",
    "pocketmq_replication_unchecked",
)
"""What is 0 while nobody does anything."""
LACKING: Final = "was delivered up to"
RETRIES: Final = 2
"""The most queues from which a group gets again what failed."""
TABLES: Final = 10 * SECOND
"""How long a slave may have older tables than its master."""


def stored_once_where_told(plan: Plan, history: History) -> Iterator[str]:
    """A1: what was acknowledged is stored, at the place that was told, as it was sent; and not
    twice, if it was handed over once."""
    by_name: defaultdict[str, list[Stored]] = defaultdict(list)
    for stored in history.stored:
        by_name[stored.name].append(stored)
    lost: list[Send] = []
    for send in history.sends.values():
        found = by_name.get(send.name, [])
        for stored in found:
            if stored.body != send.body or stored.number != send.name:
                yield f"A1 {stored.place} does not hold what was sent as {send.name}"
            if stored.place.topic != send.topic:
                yield f"A1 {send.name} was sent to {send.topic} and is at {stored.place}"
        if send.topic == "scratch" or send.transactional:
            continue
        if send.retries == 0 and len(found) > 1 and not _may_come_twice(plan, send):
            yield f"A1 {send.name} was handed over once, and is at {[s.place for s in found]}"
        if send.place is None or not promised(plan, send):
            continue
        if not found:
            lost.append(send)
        elif send.queue_known and send.place not in [stored.place for stored in found]:
            yield f"A1 {send.name} was stored at {send.place}, and is at {found[0].place}"
    for stored in history.stored:
        if stored.name not in history.sends:
            yield f"A1 {stored.place} holds {stored.name!r}, which nobody sent"
    yield from _check_lost(plan, history, lost)


def topics_stay(plan: Plan, history: History) -> Iterator[str]:
    """A1: a topic has the queues that it was given last. A slave that is promoted may not know of
    a topic that is seconds old."""
    if plan.cluster != "single":
        return
    for topic, count in history.queues.items():
        given = {plan.queues}
        for change in history.operations:
            if (change.what, change.subject) == ("queues", topic):
                given = {int(change.value)} if change.ok else given | {int(change.value)}
        if topic != "scratch" and count not in given:
            yield f"A1 {topic} was given {sorted(given)} queues, and has {count}"


def _may_come_twice(plan: Plan, send: Send) -> bool:
    """A timed message that was delivered, and not noted as such when the power went."""
    return not send.queue_known


def promised(plan: Plan, send: Send) -> bool:
    """Whether the producer was told that it is kept, and has not tried to cancel it. What is
    damaged may be gone, also if there are copies of it: a reader passes it over."""
    return (
        not send.recalling
        and not send.damaged
        and send.place is not None
        and (send.confirmed or plan.cluster == "single")
    )


def _check_lost(plan: Plan, history: History, lost: list[Send]) -> Iterator[str]:
    """With ASYNC_FLUSH, a power cut may take the last messages, and none in between, other than of
    a store that was repaired, which has some behind those that are gone."""
    if not lost:
        return
    excused: set[str] = set()
    if not plan.synchronous:
        for cut in history.power_cuts:
            missing = {send.name for send in lost}
            before = [
                send
                for send in history.sends.values()
                if send.queue_known and send.place is not None and (send.ended or 0) <= cut
                and send.topic != "scratch"
            ]  # fmt: skip
            by_queue: defaultdict[tuple[str, int], list[Send]] = defaultdict(list)
            for send in before:
                assert send.place is not None
                by_queue[send.topic, send.place.queue].append(send)
            for sends in by_queue.values():
                sends.sort(key=lambda send: send.place or Place("", "", 0, 0), reverse=True)
                for send in sends:
                    is_there = send.name not in missing and not history.flips
                    if is_there or (send.ended or 0) < cut - UNFLUSHED:
                        break
                    excused.add(send.name)
            excused |= {
                send.name
                for send in lost
                if not send.queue_known and cut - UNFLUSHED <= (send.ended or 0) <= cut
            }
    shorter = plan.settings.get("syncFromLastFile") == "true"
    if shorter or any(fault.kind == "full disk" for fault in plan.faults):
        # A full disk makes brokers remove the oldest file of the log, and a member that began with
        # the last file has no others when it becomes the master.
        removed = history.shorter_log or any(begin > 0 for begin in history.begins.values())
        for send in lost:
            assert send.place is not None
            queue = send.place.topic, send.place.queue
            begin = history.begins.get(queue, 0)
            # Delayed messages were told another place.
            if send.place.offset < begin if send.queue_known else removed:
                excused.add(send.name)
    for send in lost:
        if send.name not in excused:
            yield f"A1 {send.name} was acknowledged for {send.place}, and is nowhere"


def delivered_to_each_group(plan: Plan, history: History) -> Iterator[str]:
    """A2: each stored message came to each group at least once, and was handled."""
    # From then on, offsets that a group has read may be given to other messages.
    cuts = [*history.losses, *([] if plan.synchronous else history.power_cuts)]
    groups = {c.reader: c.flow for c in plan.clients if c.reader}
    done: defaultdict[str, set[str]] = defaultdict(set)
    seen: defaultdict[tuple[str, str, int], int] = defaultdict(lambda: -1)
    came: defaultdict[tuple[str, Place], set[str]] = defaultdict(set)
    for delivery in history.deliveries:
        if delivery.ended is not None:
            done[delivery.group].add(delivery.name)
        place = delivery.place
        came[delivery.group, place].add(delivery.name)
        for cut in cuts:
            if delivery.at <= cut and not delivery.again:
                key = (delivery.group, place.topic, place.queue)
                seen[key] = max(seen[key], place.offset)
    read_ahead: defaultdict[tuple[str, int], int] = defaultdict(lambda: -1)
    for send in history.sends.values():
        before = any((send.ended or 0) <= cut for cut in cuts)
        if send.place is not None and send.queue_known and before:
            queue = send.place.topic, send.place.queue
            read_ahead[queue] = max(read_ahead[queue], send.place.offset)
    for group, topic in groups.items():
        if topic == "scratch":
            continue
        left_out = history.skipped(group)
        for stored in history.stored:
            place = stored.place
            if place.topic != topic or stored.name in done[group]:
                continue
            send = history.sends[stored.name]
            if left_out and send.began <= left_out:
                continue
            # The damaged copy may be the one that waited to come again.
            if _may_be_dropped(send) or send.damaged:
                continue
            # A queue that became shorter, and has grown again.
            known = max(seen[group, topic, place.queue], read_ahead[topic, place.queue])
            if cuts and (place.offset <= known or came[group, place] - {stored.name}):
                continue
            yield f"A2 {stored.name} at {place} was never handled in group {group}"


def _may_be_dropped(send: Send | None) -> bool:
    """A consumer drops a request that nobody waits for any more, also when it comes again after the
    reply was pushed, and the answer to the replier was lost."""
    return send is not None and send.patience > 0


def read_is_kept(plan: Plan, history: History) -> Iterator[str]:
    """A9: what came from a queue stays at its place: with SYNC_FLUSH it was on the disk before, and
    in a controller group all members had it."""
    if plan.cluster == "slave" or (history.power_cuts and not plan.synchronous):
        return
    names = {stored.place: stored.name for stored in history.stored}
    for delivery in history.deliveries:
        place = delivery.place
        begin = history.begins.get((place.topic, place.queue))
        if begin is None or place.topic == "scratch" or place.offset < begin or delivery.again:
            continue  # expired, deleted, or of a group's retry topic
        send = history.sends.get(delivery.name)
        if names.get(place) != delivery.name and not (send and send.damaged):
            yield f"A9 {delivery.name} came from {place}, which holds {names.get(place)}"


def bodies_are_whole(plan: Plan, history: History) -> Iterator[str]:
    """A2: what came is what was sent."""
    for delivery in history.deliveries:
        send = history.sends.get(delivery.name)
        if send is None or send.body != delivery.body:
            yield f"A2 {delivery.client} got {delivery.body[:40]!r} from {delivery.place}"


def in_order(plan: Plan, history: History) -> Iterator[str]:
    """A3: within one life of an orderly consumer the offsets of a queue rise, unless it lost the
    queue meanwhile; and messages of one key are stored in the order in which they were sent."""
    groups = {c.group for c in plan.clients if c.role == "orderly"}
    last: dict[tuple[str, str, int], Delivery] = {}
    owner: dict[tuple[str, str, int], Delivery] = {}
    for delivery in history.deliveries:
        if delivery.group not in groups:
            continue
        place = delivery.place
        queue = (delivery.group, place.broker, place.queue)
        before, previous = last.get(queue), owner.get(queue)
        same = before is not None and (before.client, before.life) == (
            delivery.client, delivery.life
        )  # fmt: skip
        if before is not None and same and place.offset < before.place.offset:
            again = history.disturbed(before.at, delivery.at)
            if not again and previous is before:
                yield f"A3 {delivery.client} got {place} after {before.place}"
        gap = before is not None and same and place.offset > before.place.offset + 1
        if before is not None and gap and not history.flips:
            yield f"A3 {delivery.client} got {place} right after {before.place}"
        last[queue] = owner[queue] = delivery
    keyed: defaultdict[tuple[str, str, str, int], list[Send]] = defaultdict(list)
    for send in history.sends.values():
        if send.key and send.place is not None:
            life = send.name.rpartition(".")[0]
            keyed[life, send.key, send.place.broker, send.place.queue].append(send)
    for sends in keyed.values():
        sends.sort(key=lambda send: send.began)
        for one, other in pairwise(sends):
            if one.place is not None and other.place is not None and one.place > other.place:
                if not plan.synchronous and history.power_cuts:
                    continue  # the queue was made shorter
                if plan.lost_master and not one.confirmed:
                    continue  # the slave, which is the master now, did not have it
                yield f"A3 {one.name} is at {one.place}, the later {other.name} at {other.place}"


def one_owner_at_a_time(plan: Plan, history: History) -> Iterator[str]:
    """A8: two orderly consumers never work on one queue at the same time."""
    groups = {c.group for c in plan.clients if c.role == "orderly"}
    busy: dict[tuple[str, str, int], Delivery] = {}
    paused = {f.target for f in plan.faults if f.kind in ("pause", "partition")}
    for delivery in history.deliveries:
        if delivery.group not in groups:
            continue
        queue = (delivery.group, delivery.place.broker, delivery.place.queue)
        before = busy.get(queue)
        busy[queue] = delivery
        if before is None or before.client == delivery.client:
            continue
        overlaps = before.ended is not None and before.ended > delivery.at
        # A broker that was started again knows no locks; who slept too long has lost its own.
        # A lock does not depend on what the clock shows.
        disturbed = history.disturbed(before.at - LOCK_LIFE, delivery.at, clocks=False)
        excused = disturbed or before.client in paused
        if overlaps and not excused:
            yield f"A8 {before.client} and {delivery.client} had {delivery.place} at once"


def not_too_early(plan: Plan, history: History) -> Iterator[str]:
    """A4: no delayed message comes before its time."""
    if any(fault.kind == "clock" for fault in plan.faults):
        return  # a clock that was set forward lets them come
    for delivery in history.deliveries:
        send = history.sends.get(delivery.name)
        early = EARLY + differ(plan, delivery.at)
        if send is not None and send.due and delivery.at < send.due - early:
            early = (send.due - delivery.at) // MILLISECOND
            yield f"A4 {delivery.name} came {early} ms early to {delivery.client}"


def recalled_stays_away(plan: Plan, history: History) -> Iterator[str]:
    """R: what was recalled in time comes to nobody, also when the broker was away meanwhile."""
    if plan.cluster != "single" or any(fault.kind == "clock" for fault in plan.faults):
        return  # a recall does not wait for copies
    if history.power_cuts and not plan.synchronous:
        return
    for delivery in history.deliveries:
        send = history.sends.get(delivery.name)
        if send is not None and send.recalled and send.recalled < send.due - IN_TIME:
            early = (send.due - send.recalled) // MILLISECOND
            yield f"R {send.name} was recalled {early} ms before it was due, and came"


def transactions_end_as_decided(plan: Plan, history: History) -> Iterator[str]:
    """A5: what was committed is there, and what was rolled back is not."""
    full = any(fault.kind == "full disk" for fault in plan.faults)
    # A full disk makes brokers remove the oldest file of the log, with what is in it by then; and a
    # member that began with the newest file has nothing else when it is the master.
    shorter = full or plan.settings.get("syncFromLastFile") == "true"
    removed = history.shorter_log or (
        shorter and any(begin > 0 for begin in history.begins.values())
    )
    visible = Counter(stored.name for stored in history.stored)
    visible.update({d.name: 1 for d in history.deliveries if d.name not in visible})
    for send in history.sends.values():
        if not send.transactional:
            continue
        count = visible[send.name]
        if count and send.fate != "commit":
            yield f"A5 {send.name} is visible, and its fate is {send.fate or 'open'}"
        promised = send.place is not None and send.confirmed and send.fate == "commit"
        excused = (
            removed
            or send.damaged
            or (
                not plan.synchronous
                and any((send.ended or 0) - UNFLUSHED <= cut for cut in history.power_cuts)
            )
        )
        if promised and not count and not excused:
            yield f"A5 {send.name} was committed, and never came"
        asked = (send.ended or send.began) + 10 * SECOND
        if count > 1 and not history.disturbed(send.began, asked):
            yield f"A5 {send.name} was committed {count} times"


def invisible_for_a_while(plan: Plan, history: History) -> Iterator[str]:
    """A6: what was popped comes to nobody else within its invisible time, nor once it was
    acknowledged: then it would come from the group's retry topic."""
    if any(fault.kind == "clock" for fault in plan.faults):
        return
    last: dict[Place, Delivery] = {}
    acknowledged: dict[tuple[str, str], Delivery] = {}
    for delivery in history.deliveries:
        if not delivery.visible_again:
            continue
        name = delivery.group, delivery.name
        noted = acknowledged.get(name)
        if noted is not None and noted.ended is not None and noted.ended < delivery.at:
            sent_once = not history.sends[delivery.name].retries
            if sent_once and not history.disturbed(noted.at, delivery.at):
                yield f"A6 {delivery.name} came again from {delivery.place}, though acknowledged"
            continue
        if delivery.acknowledged:
            acknowledged[name] = delivery
        before = last.get(delivery.place)
        last[delivery.place] = delivery
        if before is None or history.disturbed(before.at, delivery.at):
            continue
        if delivery.at < before.visible_again - EPOCH - 50 * MILLISECOND - differ(
            plan, delivery.at
        ):
            yield f"A6 {delivery.place} came again within its invisible time"


def differ(plan: Plan, now: int) -> int:
    """By how much the clocks of two machines may differ that drift."""
    rates = [abs(float(fault.amount)) for fault in plan.faults if fault.kind == "drift"]
    return int(2 * max(rates, default=0.0) * now)


def committed_is_done(plan: Plan, history: History) -> Iterator[str]:
    """A7: a group's offset never passes a message that nobody has handled, unless an administrator
    moved it."""
    begun: dict[tuple[str, str, str, int, int], int] = {}
    for delivery in history.deliveries:
        place = delivery.place
        key = (delivery.group, place.topic, place.broker, place.queue, place.offset)
        if delivery.ended is not None or delivery.again == 0:
            begun.setdefault(key, delivery.at)
    stored: defaultdict[tuple[str, str, int], list[int]] = defaultdict(list)
    began: dict[Place, int] = {}
    names: dict[Place, str] = {}
    for each in history.stored:
        stored[each.place.topic, each.place.broker, each.place.queue].append(each.place.offset)
        names[each.place] = each.name
        began[each.place] = history.sends[each.name].began if each.name in history.sends else 0
    told: set[tuple[str, Place]] = set()
    for commit in history.commits:
        if commit.topic == "scratch" or (history.power_cuts and not plan.synchronous):
            continue
        for offset in stored[commit.topic, commit.broker, commit.queue]:
            place = Place(commit.topic, commit.broker, commit.queue, offset)
            if offset >= commit.offset or (commit.group, place) in told:
                continue
            if began[place] <= history.skipped(commit.group):
                continue
            at = begun.get((commit.group, *place))
            if at is None and _may_be_dropped(history.sends.get(names[place])):
                continue
            if at is None or at > commit.at:
                told.add((commit.group, place))
                yield f"A7 group {commit.group} had committed {commit.offset}, not handled {place}"


def progress_stays(plan: Plan, history: History) -> Iterator[str]:
    """P: a group's offset goes back only where an administrator sends it back, or a broker died
    that had not written it down. A consumer that was away meanwhile tells what it knew."""
    away = {f.target for f in plan.faults if f.kind in ("pause", "partition", "slow link")}
    away |= {name for f in plan.faults for name in f.others}
    excused = {client.group for client in plan.clients if client.name in away}
    last: dict[tuple[str, str, str, int], Commit] = {}
    for commit in history.commits:
        key = (commit.group, commit.topic, commit.broker, commit.queue)
        before = last.get(key)
        last[key] = commit
        if before is None or commit.offset >= before.offset or commit.group in excused:
            continue
        period = (before.at, commit.at)
        if history.disturbed(before.at - UNWRITTEN, commit.at) or any(
            history.operated(what, commit.group, *period) for what in ("reset", "skip", "forget")
        ):
            continue
        yield f"P {commit.group} was at {before.offset} of {key[1:]}, and is at {commit.offset}"


def clones_are_equal(plan: Plan, history: History) -> Iterator[str]:
    """P: a group that was given another one's offsets has them."""
    for clone in history.operations:
        if clone.what != "clone" or not clone.ok or clone.answer is None or clone.ended is None:
            continue
        period = (clone.began - UNWRITTEN, clone.ended)
        if history.disturbed(*period) or any(
            history.operated(what, clone.subject, *period) for what in ("reset", "skip", "forget")
        ):
            continue
        for before, found, after in zip(*clone.answer, strict=True):
            if (
                not min(before.offset, after.offset)
                <= found.offset
                <= max(before.offset, after.offset)
            ):
                yield f"P {found} is not between {before} and {after}"


def settings_stay(plan: Plan, history: History) -> Iterator[str]:
    """S: a broker has the settings that an administrator gave it last, also after it was killed. In
    a group, those of the master count, and it may be another one."""
    if plan.cluster != "single":
        return
    may_be: dict[str, set[str]] = {}
    drained: Operation | None = None
    for operation in history.operations:
        value, key = operation.value, operation.subject
        match operation.what:
            case "set":
                may_be[key] = {value} if operation.ok else may_be.get(key, set()) | {value, ""}
            case "look" if key in may_be and not may_be[key] & {value, ""}:
                yield f"S {key} is {value}, and was set to {may_be[key]}"
            case "drain":
                drained = operation
            case "drained" if value != DRAINED:
                yield f"S a broker that was drained has the permission {value}"
            case "route":
                assert drained is not None
                told = (drained.ended or 0) + REGISTERED
                calm = not history.disturbed(drained.began, operation.began)
                if value != DRAINED and operation.began > told and calm:
                    yield f"S producers are told {value} of a broker that was drained"


def rights_are_kept(plan: Plan, history: History) -> Iterator[str]:
    """G: nobody sends without the right, and who has it is not refused, also after a kill. A slave
    that is promoted may not know of the last change."""
    guests = [client for client in plan.clients if client.role == "guest"]
    if not guests or plan.lost_master:
        return
    changes = [o for o in history.operations if o.what in ("grant", "revoke")]
    for send in history.sends.values():
        if send.client != guests[0].name or send.ended is None:
            continue
        rights = _rights(changes, send)
        if send.place is not None and rights == {"revoke"}:
            yield f"G {send.name} was stored at {send.place} without the right to send"
        if "NO_PERMISSION" in send.error and rights == {"grant"}:
            yield f"G {send.name} was refused despite the right to send: {send.error}"


def _rights(changes: list[Operation], send: Send) -> set[str]:
    """Which of the changes may have held while a message was sent."""
    rights = {"revoke"}
    for change in changes:
        if change.began > (send.ended or 0):
            break
        over = change.ok and change.ended is not None and change.ended <= send.began
        rights = {change.what} if over else rights | {change.what}
    return rights


def deleted_is_gone(plan: Plan, history: History) -> Iterator[str]:
    """What was stored before its topic was deleted is not in the topic that was made later."""
    # A slave copies the tables of its master now and then. One that is elected before it has done
    # so does not know of the last deletion.
    deletions = [
        o
        for o in history.operations
        if o.what == "delete" and o.ok
        and not (plan.cluster == "group" and history.disturbed(o.began, (o.ended or 0) + TABLES))
    ]  # fmt: skip
    changes = [o for o in history.operations if o.what in ("delete", "create")]
    names = {stored.name for stored in history.stored if stored.place.topic == "scratch"}
    for send in history.sends.values():
        if send.topic != "scratch" or send.place is None or send.ended is None:
            continue
        ended = send.ended
        # A slave copies the tables of its master now and then.
        if plan.lost_master:
            continue
        if send.name in names and any(ended <= deletion.began for deletion in deletions):
            yield f"D1 {send.name} is there, though its topic was deleted since"
        if send.name in names or not promised(plan, send):
            continue
        if not send.queue_known:
            continue  # it may come only after everything was read
        touched = any(change.ended is None or change.ended >= send.began for change in changes)
        made = any(change.what == "create" and change.ok for change in changes)
        if not touched and made and not (history.power_cuts and not plan.synchronous):
            yield f"D1 {send.name} was stored at {send.place} since the last change, and is not"
    yield from _late(plan, history, deletions)


def _late(plan: Plan, history: History, deletions: list[Operation]) -> Iterator[str]:
    """Delayed messages that came though their topic was deleted before they were due."""
    if plan.lost_master or any(fault.kind == "clock" for fault in plan.faults):
        return
    for delivery in history.deliveries:
        send = history.sends.get(delivery.name)
        if send is None or send.topic != "scratch" or not send.due or send.ended is None:
            continue
        ended = send.ended
        if any(ended <= o.began and (o.ended or 0) < send.due for o in deletions):
            yield f"D1 {send.name} came to {delivery.client}, though its topic was deleted before"


def health_is_true(plan: Plan, history: History) -> Iterator[str]:
    """H: no member says that it is ready while its disk is full."""
    for health in history.health:
        for machine, begin, end in history.full_disks:
            full = begin + TOLD < health.at <= min(end, history.calm or end)
            if health.ready and full and machine == health.machine:
                yield f"H {machine} said that it is ready while its disk was full"
        for begin, end in history.absences:
            away = begin + SILENCE < health.at <= min(end, history.calm or end)
            if health.ready and away and health.machine != plan.brokers[0]:
                yield f"H {health.machine} said that it is ready while its master was away"


def figures_are_true(plan: Plan, history: History) -> Iterator[str]:
    """H: in the end each member's metrics say what it is."""
    for machine, problems, metrics in history.figures:
        facts = history.facts[machine]
        ready = not problems
        told = {
            "pocketmq_ready": (metrics["pocketmq_ready"], int(ready)),
            f"pocketmq_member_role {facts.role}": (
                metrics[f"pocketmq_member_role {facts.role}"], 1,
            ),
            "pocketmq_connections": (metrics["pocketmq_connections"], facts.connections),
            "pocketmq_storage_free": (metrics["pocketmq_storage_free"], facts.free),
            "pocketmq_registered_name_servers": (
                metrics["pocketmq_registered_name_servers"], plan.name_servers,
            ),
        }  # fmt: skip
        if facts.role == "MASTER":
            copies = metrics.get("pocketmq_replication_copies", 0)
            told["pocketmq_replication_copies"] = copies, facts.copies
        for name, (value, right) in told.items():
            if value != right:
                yield f"H {machine} says {name} {value:g}, and it is {right}"
        damaged = metrics["pocketmq_damaged_messages"]
        if damaged and not history.flips:
            yield f"H {machine} says that {damaged:g} messages are damaged, and none is"


def nothing_is_kept(plan: Plan, history: History) -> Iterator[str]:
    """M: in the end nothing waits in a member, and no more pulls are held than consumers make."""
    queues = plan.queues + MOST_ADDED + RETRIES
    pulls = queues * sum(bool(client.reader) for client in plan.clients)
    for machine, _, metrics in history.figures:
        is_slave = history.facts[machine].role == "SLAVE"
        for name, value in metrics.items():
            # A slave keeps what was late at its master until that has delivered something else.
            is_late = is_slave and name.startswith("rocketmq_timer_dequeue_lag")
            if value and name.startswith(IDLE) and not is_late:
                yield f"M {machine} says {name} {value:g} long after everything came"
        held = metrics["pocketmq_held_pulls"]
        if held > pulls:
            yield f"M {machine} holds {held:g} pulls, and there are at most {pulls}"


def requests_get_their_reply(plan: Plan, history: History) -> Iterator[str]:
    """Q: a request ends in time, with its own reply or an error; and one that was only not replied
    to is stored."""
    slept = {f.target for f in plan.faults if f.kind == "pause"}
    # A full disk makes brokers remove what is old.
    kept = plan.cluster == "single" and (plan.synchronous or not history.power_cuts)
    kept = kept and not history.full_disks
    names = {stored.name for stored in history.stored}
    for send in history.sends.values():
        if not send.patience or send.ended is None:
            continue
        if send.reply is not None and send.reply != reply_to(send.body):
            yield f"Q {send.name} got the reply {send.reply[-40:]!r}"
        took = send.ended - send.began
        if took > send.patience + SLACK and send.client not in slept:
            yield f"Q {send.name} took {took / SECOND:.1f} s: {send.error}"
        stored = send.reply is not None or "RequestTimeout" in send.error
        if stored and kept and send.name not in names and not send.damaged:
            yield f"Q {send.name} was stored, and is nowhere: {send.error or 'it got a reply'}"


def children_are_answered_alone(plan: Plan, history: History) -> Iterator[str]:
    """C: each child of a parent gets its own answer: one to a queue that does not exist is refused,
    and the others are not."""
    for send in history.sends.values():
        if send.queue is None:
            continue
        if send.queue == WRONG_QUEUE:
            if send.place is not None:
                yield f"C {send.name}, to a queue that does not exist, was stored at {send.place}"
        elif send.place is not None and send.place.queue != send.queue:
            yield f"C {send.name}, to queue {send.queue}, was stored at {send.place}"
        elif f"[{WRONG_QUEUE}]" in send.error:
            yield f"C {send.name}, to queue {send.queue}, got another one's answer: {send.error}"


def sends_go_on(plan: Plan, history: History) -> Iterator[str]:
    """L: no send fails that has waited for a broker which is back."""
    if plan.cluster != "single" or any(
        fault.kind not in ("kill", "drift") for fault in plan.faults
    ):
        return
    if any("drain" in client.operations for client in plan.clients):
        return
    for send in history.sends.values():
        down = [
            cut for cut in history.downs if send.began <= cut[1] and cut[0] <= (send.ended or 0)
        ]
        if send.error and send.retries and len(down) == 1:
            up = down[0][1]
            if (send.ended or 0) - up > RECONNECTED:
                waited = ((send.ended or 0) - up) // MILLISECOND
                yield f"L {send.name} failed {waited} ms after the broker was back: {send.error}"


def routes_stay(plan: Plan, history: History) -> Iterator[str]:
    """L: a topic whose broker nothing has happened to is known."""
    for at, error in history.unknown:
        if not history.disturbed(at, at):
            yield f"L a name server did not know a topic: {error}"


def nothing_unexpected(plan: Plan, history: History) -> Iterator[str]:
    """A10: no error in the log, no exception that nobody catches; but a slave that becomes the
    master says of delay levels that it may lack messages, if it has only a part of the log."""
    for error in history.errors:
        if plan.cluster == "single" or LACKING not in error:
            yield f"A10 {error}"


CHECKS: Final[tuple[Check, ...]] = (
    stored_once_where_told,
    topics_stay,
    delivered_to_each_group,
    read_is_kept,
    bodies_are_whole,
    in_order,
    not_too_early,
    recalled_stays_away,
    transactions_end_as_decided,
    invisible_for_a_while,
    committed_is_done,
    progress_stays,
    clones_are_equal,
    settings_stay,
    rights_are_kept,
    one_owner_at_a_time,
    deleted_is_gone,
    requests_get_their_reply,
    children_are_answered_alone,
    sends_go_on,
    routes_stay,
    health_is_true,
    figures_are_true,
    nothing_is_kept,
    nothing_unexpected,
)


def wrong(plan: Plan, history: History) -> list[str]:
    """Everything that is wrong."""
    return [text for check in CHECKS for text in check(plan, history)]
