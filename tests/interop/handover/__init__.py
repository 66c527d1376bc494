"""One store in the hands of both makes in turn, with kills in between.

    python -m tests.interop.handover --rounds 20

| module | what it does |
|---|---|
| ledger | keeps what the brokers acknowledged |
| traffic | sends messages of every kind |
| life | one broker from its start to its end, which may come while files roll |
| answers | reads everything that a broker says of its store |
| comparison | compares that with the ledger, and with what the broker before said |
| index_loss | what the official broker is known to leave out of its index after a kill |
| handover | lives of both makes, one after the other |
"""
