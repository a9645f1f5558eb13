"""The commands on models: stored, loaded, on their way in or out."""
