"""The remoting protocol: frames, typed headers and bodies, servers and connections.

Without I/O: :mod:`remoting.frame` (bytes to commands and back), :mod:`remoting.request` (requests
with typed headers), :mod:`remoting.headers`, :mod:`remoting.bodies`, :mod:`remoting.dispatch` (from
request codes to handlers), :mod:`remoting.errors`, :mod:`remoting.codes`,
:mod:`remoting.properties_file`. With it: :mod:`remoting.server`, :mod:`remoting.connection`,
:mod:`remoting.pool`, :mod:`remoting.service`. Nothing here knows of brokers, name servers, clients
or stores.
"""
