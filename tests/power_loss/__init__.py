"""What a power cut may leave of a store, and whether a broker keeps its promises on it.

    python -m tests.power_loss --states 10000

| module | what it does |
|---|---|
| disk | records what has reached the disk, and what is still under way, while a broker runs |
| crash_state | draws what a power cut could leave of writes under way, and writes it out |
| traffic | lets a broker work, and keeps what it acknowledged |
| verdict | opens what is left, and compares it with what was acknowledged |
| campaign | lives of a broker, one after the other, each ended by a power cut |

The promises: under SYNC_FLUSH every acknowledged message is at its offset; under ASYNC_FLUSH only
the end of the log is missing; and in both cases the broker starts.
"""
