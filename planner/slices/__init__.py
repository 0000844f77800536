"""Slices of units: parts that several peers compute side by side, and what a model is made of for who wants them."""
