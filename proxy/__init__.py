"""The sidecar: a session's one way out. mitmproxy's core, our hooks, our log.

`decision`, `policy`, `witness` and `egress` are pure of mitmproxy and run on any Python from 3.11;
`addon`, `passage`, `authority` and `main` run in the sidecar's image only.
"""
