"""Files as the store needs them: locked, checked, written as a whole or not at all."""
