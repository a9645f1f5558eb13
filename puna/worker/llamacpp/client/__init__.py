"""How a server is spoken with: its connections, the HTTP on them, and the bodies that it takes and gives."""
