"""KV on its way to and from a disk: sessions, and prefixes that outlive their time in memory."""
