"""Who has memory, who gives way when it is short, and how models come by it."""
