# The public names of pocketmq.testing: type checkers read this file, and pocketmq/_lazy.py reads it
# at run time.

from pocketmq.testing.clock import MovableClock as MovableClock
from pocketmq.testing.faults import Held as Held
from pocketmq.testing.server import RocketMQ as RocketMQ
from pocketmq.testing.server import SyncRocketMQ as SyncRocketMQ
