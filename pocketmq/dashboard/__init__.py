"""The dashboard: a web page about a cluster, which it asks as any client does.

| room | holds |
|---|---|
| server, config | the part of a process: a socket, and the rest when it is needed |
| parts, access | connections to the cluster, and the sampler |
| app, services | the web application, and what its handlers share |
| pages, forms | addresses and their handlers: what shows, and what changes something |
| views | what a page shows, gathered from the cluster without HTTP |
| rendering, templates | pages as HTML |
| guard | hosts, origins, headers: what every request and answer has to have |
| sessions, login | who is logged in, and how one logs in |
| sampler, history | the lag and the rates of the last hour and day |
| chart | lines and axes as numbers |
| body_preview | bodies of messages as JSON, text, or hexadecimal digits |
| tail | messages as they come |

It needs the extra `dashboard`. docs/dashboard.md describes it.
"""
