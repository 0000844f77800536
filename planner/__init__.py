"""Decides what runs where: models cut into units, costs, plans. Imports nothing of ours."""
