"""Whether a broker keeps its promises when the power goes or the disk fails.

    python -m tests.durability --states 10000        power cuts
    python -m tests.durability --faults 500          failing disks

| module | what it does |
|---|---|
| disk | records what has reached the disk, and what is still under way, while a broker runs |
| crash_state | draws what a power cut could leave of writes under way, and writes it out |
| failing_disk | lets one call of the file layer fail while a broker runs |
| power_loss | lives of a broker, one after the other, each ended by a power cut |
| bugs | deliberate bugs, each of which must be found |
| traffic | lets a broker work, and keeps what it acknowledged |
| verdict | opens what is left, and compares it with what was acknowledged |

The promises: under SYNC_FLUSH every acknowledged message is at its offset; under ASYNC_FLUSH only
the end of the log is missing; and in both cases the broker starts.
"""
