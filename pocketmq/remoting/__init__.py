"""The remoting protocol: frames, typed headers and bodies, servers and connections.

Without I/O: `remoting.frame` (bytes to commands and back), `remoting.request` (requests
with typed headers), `remoting.headers`, `remoting.bodies`, `remoting.dispatch` (from
request codes to handlers), `pocketmq.remoting.errors`, `pocketmq.remoting.codes`,
`remoting.properties_file`. With it: `remoting.server`, `remoting.connection`,
`remoting.pool`, `remoting.service` and its `remoting.stop_deadline`. Nothing here knows of
brokers, name servers, clients or stores.
"""
