"""How sequences come by KV that is already there, and where they leave theirs."""
