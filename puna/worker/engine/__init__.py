"""The engine worker: one engine on one device, and every model that is resident there."""
