"""Forecasts from what was measured before: unit times, hazards and their priors."""
