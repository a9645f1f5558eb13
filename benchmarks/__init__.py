"""Measurements, each answering one written question; `make bench` runs the side-by-side one."""
