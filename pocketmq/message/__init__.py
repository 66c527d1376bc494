"""Messages as RocketMQ 5.3 stores and sends them: bytes in, values out, no I/O.

This package has what a client, a broker, a store and an offline reader must agree on: the stored
record, the batch body, the properties text, tag hashes, message ids, body compression, the names
and limits of the field, and fastjson's dialect of JSON. Nothing here opens a file or a socket, and
nothing here imports another package of the project.
"""
