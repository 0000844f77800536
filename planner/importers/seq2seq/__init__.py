"""Models that write a target text of a source text: an encoder, and a decoder that looks at its rows."""
