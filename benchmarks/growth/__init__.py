"""What the engine costs as streams, waiting requests, prompts and cached blocks become many."""
