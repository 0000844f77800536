"""What is done to a mesh in each run, drawn from a seed, and the figures that show how it fared. Pure."""
