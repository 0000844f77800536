"""onnxruntime as the planner takes it."""

from planner.model.onnxruntime_import import OrtDevice, ort

__all__ = ["OrtDevice", "ort"]
