"""Placements that people choose by their algorithm, over the one cost model, and what each of them finds."""
