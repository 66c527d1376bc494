"""Transactions: messages that are stored when sent, and become readable when the producer commits.

A *half message* is in RMQ_SYS_TRANS_HALF_TOPIC until its transaction ends; a commit stores it again
in the topic that it was sent to. Commits and rollbacks are written to RMQ_SYS_TRANS_OP_HALF_TOPIC
as *ops*, lists of half queue offsets whose transactions have ended. Checks find open transactions
by comparing the half queue with the ops, and ask the producer group. The files are those of the
official broker, so either broker can continue where the other one stopped.
"""
