"""onnxruntime as all of Shoal takes it: told not to report to its maker, which it reads when it is loaded.

Its packages for Linux, macOS and Windows send events about the machine and its models to Microsoft unless that is
turned off before they are imported. Nobody who lends a machine or asks a question agreed to it.
"""

from __future__ import annotations

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # whoever wants the reports sets 0

import onnxruntime as ort
from onnxruntime.capi.onnxruntime_pybind11_state import OrtDevice
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema as all_operator_schemas

__all__ = ["OrtDevice", "all_operator_schemas", "ort"]
