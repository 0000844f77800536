"""What a model is to the planner: its manifest, units, their graphs, and the store that holds them."""
