"""What users set, in the environment and in a file, and what the machine and its control groups grant."""
