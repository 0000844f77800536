"""What a model is to the planner: its architecture, manifest, units, shards and the store that holds them."""
