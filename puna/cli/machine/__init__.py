"""The commands on this machine: what it is, how fast it is, what it did."""
