"""What is known of each family of models: its names, its hyperparameters, how its weights are laid out."""
