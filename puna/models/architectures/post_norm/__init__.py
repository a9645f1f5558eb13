"""Models whose norms stand behind what a layer adds."""
