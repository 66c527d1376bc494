"""Whether a broker keeps its promises when the power goes, the disk fails or files are damaged.

    python -m tests.durability --states 10000        power cuts
    python -m tests.durability --faults 500          failing disks
    python -m tests.durability --damages 10000       damaged files

| module | what it does |
|---|---|
| disk | records what has reached the disk, and what is still under way, while a broker runs |
| crash_state | draws what a power cut could leave of writes under way, and writes it out |
| damage | damages files of every kind in every way |
| base_stores | writes the stores that are damaged |
| serving | a broker without its network, and everything that it serves |
| damaged_store | opens and repairs damaged stores, and compares what is served with what was |
| failing_disk | lets one call of the file layer fail while a broker runs |
| power_loss | lives of a broker, one after the other, each ended by a power cut |
| bugs | deliberate bugs, each of which must be found |
| traffic | lets a broker work, and keeps what it acknowledged |
| verdict | opens what is left, and compares it with what was acknowledged |

The promises: under SYNC_FLUSH every acknowledged message is at its offset; under ASYNC_FLUSH only
the end of the log is missing; and in both cases the broker starts. A damaged store is refused by
name or serves all but the damage, and `pocketmq store repair` mends what is refused.
"""
