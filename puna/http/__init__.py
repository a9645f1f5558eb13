"""An HTTP/1.1 server for one ASGI application, in which everything that a client can make large is bounded."""
