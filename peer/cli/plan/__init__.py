"""What `shoal plan` and `shoal wish` are made of, beside the plan of the mesh's own model."""
