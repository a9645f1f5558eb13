"""Requests' bodies: read, unpacked and decoded within limits."""
