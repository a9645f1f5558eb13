"""The daemon as a service of systemd."""
