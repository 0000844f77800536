"""The runs of each kind: a mesh, faults and answers put together."""
