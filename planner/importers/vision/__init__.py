"""Importers of models that see: towers for pictures, and for texts beside them, and what decoders are given."""
