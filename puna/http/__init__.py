"""An HTTP/1.1 server of one ASGI application; whatever a client can make large or slow is bounded."""
