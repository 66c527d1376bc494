"""Transactions: messages that are stored now and can be read when their producer says so.

A *half message* lies in RMQ_SYS_TRANS_HALF_TOPIC until its transaction is ended: a commit stores
it once more where it was sent to, and either end is written into RMQ_SYS_TRANS_OP_HALF_TOPIC as an
*op*, a list of the half queue's offsets that are done with. What nobody ended is found by reading
the half queue beside the ops, and its producer group is asked. All of it lies on the disk as the
official broker has it, so that either can go on where the other stopped.
"""
