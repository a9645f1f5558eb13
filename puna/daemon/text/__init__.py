"""The daemon's side of text workers: their models, and jobs for those that are free."""
