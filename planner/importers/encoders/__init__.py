"""Encoders of texts: folders of embedding models and of cross-encoders, read and written as graphs."""
