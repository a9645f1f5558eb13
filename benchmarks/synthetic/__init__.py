"""Files of the shapes of real models with random weights: speed does not depend on their values."""
