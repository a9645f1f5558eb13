"""The commands on the memory that models share."""
