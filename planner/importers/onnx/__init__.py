"""How an ONNX file becomes a model of units: read, folded, cut where little crosses, and proven equal to the whole."""
