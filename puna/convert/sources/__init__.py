"""What is converted, as its files have it: nothing in them is believed."""
