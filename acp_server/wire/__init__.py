"""ACP v1 messages: what is read from the client, and what is sent to it.

Two halves. What we read is parsed by small pydantic models: `requests` (params of the client's
requests), `content` (content blocks) and `client_results` (results of the requests we make). What
we send is built by plain functions that return dicts: `updates`, `results`, `client_requests` and
`blocks`.

This package knows no session, no store and no connection. Importing it, `handshake` or a builder
module must not import pydantic: `initialize` is answered before the models are loaded.
"""
