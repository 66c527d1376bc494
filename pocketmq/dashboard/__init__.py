"""The dashboard: web pages about a cluster, which it queries like any client.

| module | holds |
|---|---|
| server, config | the dashboard of a process: a socket, and the rest on demand |
| parts, access | connections to the cluster, and the sampler |
| app, services | the web application, and the objects shared by its handlers |
| pages, forms | addresses and their handlers, for showing and for changing |
| views | the contents of pages, collected from the cluster without HTTP |
| rendering, templates | pages as HTML |
| guard | hosts, origins, headers: the rules for every request and answer |
| sessions, login | the logged-in users, and how to log in |
| sampler, history | the lag and the rates of the last hour and day |
| chart | lines and axes as numbers |
| body_preview | bodies of messages as JSON, text, or hexadecimal digits |
| tail | messages as they arrive |

Needs the extra `dashboard`. docs/dashboard.md describes it.
"""
