"""What a run consists of, drawn from its seed: the cluster, who uses it, and what goes wrong.

A plan is plain data. It can be kept, printed, and made smaller, while the seed stays the same.
"""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

Seconds = float

FLOWS: Final = ("plain", "batch", "ordered", "delayed", "transacted", "popped", "scratch")
"""Topics, and with them kinds of producers and consumers."""
ADDED_FLOWS: Final = ("asked", "broadcast", "parents", "grpc")
"""More of them, each drawn from a stream of its own."""
OPERATIONS: Final = ("reset", "skip", "clone", "queues", "drain", "set", "forget")
"""What administrators do, beside deleting and creating topics."""
CONTROLLER_MEMBERS: Final = 3
DELAYED: Final = 0.3
DRIFT: Final = 1e-3
"""By how many seconds a clock may be wrong after a second."""


class Fault(msgspec.Struct, omit_defaults=True):
    """`kind` happens to `target` at `at`, seconds after the cluster is ready.

    Attributes:
        seconds: how long it lasts, or until the process is started again.
        others: machines on the other side of a partition or a link.
        both: whether a partition cuts both ways.
        amount: a factor, or seconds, or the name of an operation.
    """

    at: Seconds
    kind: str
    target: str
    seconds: Seconds = 0.0
    others: list[str] = []
    both: bool = True
    amount: float | str = 0.0


class Client(msgspec.Struct, omit_defaults=True):
    """`role` is produce, guest (a producer without rights of its own), push, orderly, pull, pop,
    receive (by gRPC), broadcast, answer (a consumer that replies to requests), or administer;
    `rate` messages a second.

    Attributes:
        fails: how many of its messages a consumer fails to handle at first, and how many
            transactions a producer commits after it has rolled them back.
        recalls: how many of its timed messages a producer recalls.
        delayed: how many messages of the topic that is deleted are to come later.
        operations: what an administrator does, by the names in `operators`; without any, deletes
            the topic that is for it, and creates it anew.
    """

    name: str
    role: str
    flow: str
    group: str = ""
    rate: float = 0.0
    retries: int = 2
    fails: float = 0.0
    delayed: float = 0.0
    operations: list[str] = []
    recalls: float = 0.0

    @property
    def reader(self) -> str:
        """Who gets each message once more: its group, or a broadcast consumer alone; empty if the
        client reads nothing."""
        return self.name if self.role == "broadcast" else self.group


class Plan(msgspec.Struct, omit_defaults=True):
    """Attributes:
    seconds: how long things may go wrong.
    cluster: single, slave (a master and its slave), or group (with a controller).
    settings: of the brokers, by RocketMQ's names.
    lost_master: in the end the master's disk is gone, and the slave has to have everything.
    is_signed: whether requests have to be signed, by users with rights.
    """

    seed: int
    seconds: Seconds
    cluster: str = "single"
    name_servers: int = 1
    queues: int = 2
    settings: dict[str, str] = {}
    clients: list[Client] = []
    faults: list[Fault] = []
    lost_master: bool = False
    is_signed: bool = False

    @property
    def brokers(self) -> list[str]:
        counts = {"single": 1, "slave": 2, "group": CONTROLLER_MEMBERS}
        return [f"broker{number}" for number in range(counts[self.cluster])]

    @property
    def name_server_machines(self) -> list[str]:
        return [f"names{number}" for number in range(self.name_servers)]

    @property
    def flows(self) -> list[str]:
        return list(dict.fromkeys(client.flow for client in self.clients))

    @property
    def has_proxies(self) -> bool:
        """Whether brokers serve clients that speak gRPC."""
        return "grpc" in self.flows

    @property
    def synchronous(self) -> bool:
        """Whether a message is on the disk before it is acknowledged."""
        return self.settings.get("flushDiskType") == "SYNC_FLUSH"

    @property
    def has_checksums(self) -> bool:
        """Whether each record has a checksum of all its bytes, which is looked at."""
        return self.settings.get("forceVerifyPropCRC") == "true"

    @property
    def cuts_power(self) -> bool:
        return any(fault.kind == "power" for fault in self.faults)


def draw(seed: int, seconds: Seconds) -> Plan:
    """Expand a seed."""
    chance = Random(f"{seed} plan")
    plan = Plan(seed, seconds)
    plan.cluster = chance.choices(("single", "slave", "group"), (4, 3, 3))[0]
    plan.name_servers = chance.choice((1, 1, 2))
    plan.queues = chance.choice((1, 2, 3, 4))
    plan.settings = _settings(plan, chance)
    flows = chance.sample(FLOWS, chance.choice((1, 2, 2, 3)))
    for flow in flows:
        plan.clients += _clients(flow, chance)
    plan.faults = _faults(plan, chance)
    # A power cut may take from a slave what it has acknowledged; and what a master delayed whose
    # clock is an hour ahead is not due at the slave for an hour.
    master = plan.brokers[0]
    whole = all(
        f.kind not in ("power", "clock") or (f.kind == "power") == (f.target == master)
        for f in plan.faults
    )
    plan.lost_master = (
        plan.cluster == "slave" and replicates(plan) and whole and chance.random() < 0.4
    )
    # What a stream of its own draws moves nothing else of a plan.
    _add_operator(plan, Random(f"{seed} operator"))
    _add_guest(plan, Random(f"{seed} guest"))
    _add_new_disk(plan, Random(f"{seed} new disk"))
    _add_flips(plan, Random(f"{seed} bit flips"))
    _add_swizzle(plan, Random(f"{seed} swizzle"))
    _add_drift(plan, Random(f"{seed} drift"))
    if plan.cuts_power and Random(f"{seed} checksums").random() < 0.5:
        plan.settings |= {"enabledAppendPropCRC": "true", "forceVerifyPropCRC": "true"}
    for flow in ADDED_FLOWS:
        _add_flow(plan, flow, Random(f"{seed} {flow}"))
    recalls = Random(f"{seed} recalls").choice((0.0, 0.3))
    for client in plan.clients:
        if (client.role, client.flow) == ("produce", "delayed"):
            client.recalls = recalls
            plan.settings["recallMessageEnable"] = "true"
    return plan


def replicates(plan: Plan) -> bool:
    """Whether a message is on a slave before it is acknowledged."""
    return plan.settings.get("inSyncReplicas") == "2" and plan.settings["brokerRole"] != "SLAVE"


def _settings(plan: Plan, chance: Random) -> dict[str, str]:
    values: dict[str, str | int] = {
        "mappedFileSizeCommitLog": chance.choice((64, 256, 1024)) * 1024,
        "mappedFileSizeConsumeQueue": chance.choice((2_000, 20_000)),
        "mappedFileSizeTimerLog": 65_536,
        "maxHashSlotNum": 1_000,
        "maxIndexNum": 4_000,
        "flushDiskType": chance.choice(("ASYNC_FLUSH", "SYNC_FLUSH")),
        "transactionTimeOut": 2_000,
        "transactionCheckInterval": 3_000,
        "transactionCheckMax": 1_000,
        "timerPrecisionMs": chance.choice((100, 1_000)),
        "vipChannelEnable": "false",
    }
    if plan.cluster == "slave":
        values["brokerRole"] = chance.choice(("ASYNC_MASTER", "SYNC_MASTER", "SYNC_MASTER"))
        values["inSyncReplicas"] = 2 if values["brokerRole"] == "SYNC_MASTER" else 1
    elif plan.cluster == "group":
        values |= {
            "brokerRole": "SLAVE",
            "brokerId": -1,
            "enableControllerMode": "true",
            "allAckInSyncStateSet": "true",
            "minInSyncReplicas": chance.choice((1, 2)),
            "syncBrokerMetadataPeriod": 1_000,
            "messageIndexEnable": "false",
        }
    return {name: str(value) for name, value in values.items()}


def _clients(flow: str, chance: Random) -> list[Client]:
    def consumers(role: str, group: str, fewest: int, most: int) -> list[Client]:
        return [
            Client(f"{group}-{number}", role, flow, group)
            for number in range(chance.randint(fewest, most))
        ]

    rate = chance.choice((1.0, 4.0, 10.0, 25.0))
    found = [
        Client(f"send-{flow}-{number}", "produce", flow, rate=rate, retries=chance.choice((0, 2)))
        for number in range(chance.choice((1, 1, 2)))
    ]
    if flow == "scratch":
        for client in found:
            client.delayed = DELAYED
    match flow:
        case "ordered":
            found += consumers("orderly", "orderly", 1, 3)
        case "popped":
            found += consumers("pop", "pop", 1, 2)
        case "scratch":
            found += consumers("push", "scratch", 1, 1)
            found.append(Client("admin", "administer", flow))
        case _:
            found += consumers("push", f"push-{flow}", 1, 3)
            if chance.random() < 0.4:
                found += consumers("pull", f"pull-{flow}", 1, 2)
            if chance.random() < 0.3:
                found += consumers("push", f"other-{flow}", 1, 1)
    fails = chance.choice((0.0, 0.0, 0.02))
    for client in found:
        client.fails = fails
    return found


def _add_operator(plan: Plan, chance: Random) -> None:
    """An administrator, who may be killed in the midst of it, and groups that only it has."""
    flows = [flow for flow in plan.flows if flow not in ("popped", "ordered", "scratch")]
    if chance.random() < 0.5 or not flows:
        return
    operations = chance.sample(OPERATIONS, chance.choice((1, 1, 2, 3)))
    flow = chance.choice(flows)
    plan.clients.append(Client("operator", "administer", flow, operations=operations))
    for operation, group in (("skip", f"skip-{flow}"), ("forget", f"fleeting-{flow}")):
        if operation in operations:
            plan.clients.append(Client(f"{group}-0", "push", flow, group))
    if chance.random() < 0.3:
        at = round(chance.uniform(0.05, 0.9) * plan.seconds, 6)
        plan.faults.append(Fault(at, "kill", "operator", round(chance.uniform(0.1, 8.0), 3)))
        plan.faults.sort(key=lambda fault: fault.at)


def _add_guest(plan: Plan, chance: Random) -> None:
    """A producer who may send now and then, and who says when."""
    flows = [flow for flow in plan.flows if flow in ("plain", "batch", "delayed")]
    if chance.random() < 0.75 or plan.cluster == "group" or not flows:
        return
    plan.is_signed = True
    flow = chance.choice(flows)
    rate, retries = chance.choice((1.0, 4.0, 10.0)), chance.choice((0, 2))
    plan.clients.append(Client("guest", "guest", flow, rate=rate, retries=retries))
    plan.clients.append(Client("warden", "administer", flow, operations=["grant"]))


def _add_new_disk(plan: Plan, chance: Random) -> None:
    """A slave of a controller group that loses everything and begins anew, from the master's first
    file or from its last one."""
    if plan.cluster != "group":
        return
    if chance.random() < 0.4:
        plan.settings["syncFromLastFile"] = "true"
    if chance.random() < 0.4 and all(f.kind not in ("power", "disk error") for f in plan.faults):
        at = round(chance.uniform(0.2, 0.9) * plan.seconds, 6)
        back = round(chance.choice((0.1, 1.0, 5.0)) * chance.uniform(0.5, 1.5), 3)
        plan.faults.append(Fault(at, "new disk", chance.choice(plan.brokers), back))
        plan.faults.sort(key=lambda fault: fault.at)


def _add_flips(plan: Plan, chance: Random) -> None:
    """Bits that change on the disk of one broker, where reads check what they read. An empty member
    does not get past what is damaged at its master."""
    set_by_hand = any("set" in client.operations for client in plan.clients)
    copies = any(fault.kind == "new disk" for fault in plan.faults)
    if chance.random() < 0.85 or set_by_hand or copies:
        return
    plan.settings |= {"checkCRCOnRead": "true", "mappedFileSizeCommitLog": str(64 * 1024)}
    target = chance.choice(plan.brokers)
    for _ in range(chance.choice((1, 2, 5))):
        at = round(chance.uniform(0.3, 1.0) * plan.seconds, 6)
        plan.faults.append(Fault(at, "bit flip", target))
    plan.faults.sort(key=lambda fault: fault.at)


def _add_swizzle(plan: Plan, chance: Random) -> None:
    """Machines that are cut off one after the other, and come back in another order."""
    everyone = plan.brokers + plan.name_server_machines + [c.name for c in plan.clients]
    if plan.cluster == "group":
        everyone.append("controller")
    if chance.random() < 0.9:
        return
    chosen = chance.sample(everyone, chance.randint(2, min(5, len(everyone))))
    start = chance.uniform(0.05, 0.8) * plan.seconds
    step = chance.choice((0.2, 1.0, 4.0))
    cut, healed = ([start + step * n + chance.random() * step for n in range(len(chosen))]
                   for _ in range(2))  # fmt: skip
    chance.shuffle(healed)
    for target, at, end in zip(chosen, cut, healed, strict=True):
        seconds = round(end + step * len(chosen) - at, 6)
        others = [name for name in everyone if name != target]
        plan.faults.append(Fault(round(at, 6), "partition", target, seconds, others))
    plan.faults.sort(key=lambda fault: fault.at)


def _add_drift(plan: Plan, chance: Random) -> None:
    """Clocks that run fast or slow."""
    if chance.random() < 0.75:
        return
    everyone = plan.brokers + plan.name_server_machines + [c.name for c in plan.clients]
    for name in chance.sample(everyone, chance.randint(1, len(everyone))):
        plan.faults.append(
            Fault(0.0, "drift", name, amount=round(chance.uniform(-DRIFT, DRIFT), 6))
        )
    plan.faults.sort(key=lambda fault: fault.at)


def _add_flow(plan: Plan, flow: str, chance: Random) -> None:
    """Requests and who replies to them, broadcast consumers, producers that send many batches at
    once, or clients that speak gRPC, and what goes wrong with some of these clients."""
    if chance.random() < 0.8:
        return
    rate = chance.choice((1.0, 4.0, 10.0))
    added = [
        Client(f"send-{flow}-{number}", "produce", flow, rate=rate, retries=chance.choice((0, 2)))
        for number in range(chance.choice((1, 1, 2)))
    ]
    roles = {"asked": "answer", "broadcast": "broadcast", "parents": "push", "grpc": "receive"}
    role = roles[flow]
    added += [
        Client(f"{role}-{flow}-{number}", role, flow, f"{role}-{flow}")
        for number in range(chance.randint(1, 3))
    ]
    plan.clients += added
    for _ in range(chance.choice((0, 0, 1, 2))):
        plan.faults.append(_fault_of_client(plan, chance.choice(added), chance))
    plan.faults.sort(key=lambda fault: fault.at)


def _fault_of_client(plan: Plan, client: Client, chance: Random) -> Fault:
    at = round(chance.uniform(0.05, 0.95) * plan.seconds, 6)
    seconds = round(chance.choice((0.1, 1.0, 5.0, 20.0)) * chance.uniform(0.5, 1.5), 3)
    kind = chance.choice(("kill", "leave", "pause", "partition", "reset"))
    if kind == "partition":
        both = chance.random() < 0.6
        return Fault(at, kind, client.name, seconds, [*plan.brokers], both=both)
    if kind == "reset":
        return Fault(at, kind, chance.choice(plan.brokers), others=[client.name])
    return Fault(at, kind, client.name, seconds)


def _faults(plan: Plan, chance: Random) -> list[Fault]:
    """Some of them single, some in bursts: two that overlap find more than ten that do not."""
    faults: list[Fault] = []
    if chance.random() < 0.05:
        return faults
    for _ in range(chance.choice((1, 1, 2, 3))):
        start = chance.uniform(0.05, 0.9) * plan.seconds
        for _ in range(chance.choice((1, 1, 2, 4))):
            at = min(start + chance.expovariate(0.5), plan.seconds)
            faults.append(_fault(plan, chance, round(at, 6)))
    return sorted(faults, key=lambda fault: fault.at)


def _fault(plan: Plan, chance: Random, at: Seconds) -> Fault:
    clients = [client.name for client in plan.clients]
    servers = plan.brokers
    everyone = servers + plan.name_server_machines + clients
    power = 3 if plan.cluster == "single" or plan.synchronous else 0
    kind = chance.choices(
        ("kill", "power", "kill client", "leave", "pause", "partition", "reset", "slow link",
         "slow disk", "disk error", "full disk", "clock", "kill names"),
        (4, power, 3, 2, 3, 4, 2, 2, 3, 1, 1, 1, 1),
    )[0]  # fmt: skip
    back = round(chance.choice((0.1, 1.0, 3.0, 12.0)) * chance.uniform(0.5, 1.5), 3)
    match kind:
        case "kill" | "power" | "full disk":
            return Fault(at, kind, chance.choice(servers), back)
        case "kill names":
            return Fault(at, "kill", chance.choice(plan.name_server_machines), back)
        case "kill client":
            return Fault(at, "kill", chance.choice(clients), back)
        case "leave":
            return Fault(at, kind, chance.choice(clients), back)
        case "pause":
            seconds = round(chance.choice((1.0, 5.0, 20.0, 60.0)) * chance.uniform(0.5, 1.5), 3)
            return Fault(at, kind, chance.choice(everyone), seconds)
        case "partition":
            target = chance.choice(servers + servers + everyone)
            rest = [name for name in everyone if name != target]
            if plan.cluster == "group":
                rest.append("controller")
            others = rest if chance.random() < 0.4 else chance.sample(rest, (len(rest) + 1) // 2)
            return Fault(at, kind, target, back, others, both=chance.random() < 0.6)
        case "reset":
            target = chance.choice(servers)
            other = chance.choice([name for name in everyone if name != target])
            return Fault(at, kind, target, others=[other])
        case "slow link":
            target = chance.choice(servers)
            other = chance.choice([name for name in everyone if name != target])
            factor = chance.choice((5.0, 50.0, 200.0))
            return Fault(at, kind, target, back * 4, [other], amount=factor)
        case "slow disk":
            longest = chance.choice((0.05, 0.5, 3.0))
            return Fault(at, kind, chance.choice(servers), back * 4, amount=longest)
        case "disk error":
            operation = chance.choice(("sync", "write", "allocate", "create", "rename"))
            return Fault(at, kind, chance.choice(servers), back + 2.0, amount=operation)
    target = chance.choice(everyone)
    if target in servers:
        # Forward for as much as one likes; back only as far as delays may be late.
        step = chance.choice((-15.0, -2.0, 2.0, 3600.0))
    else:
        step = chance.choice((-3600.0, -5.0, 5.0, 3600.0))
    return Fault(at, "clock", target, amount=step)
