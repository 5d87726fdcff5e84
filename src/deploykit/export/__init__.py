"""Loaded models → fp32 artifacts, checked against their source."""

from deploykit.export.fp32 import export_fp32
from deploykit.export.parity import ParityFailed
from deploykit.export.shapes import DEFAULT_BATCH

__all__ = ["DEFAULT_BATCH", "ParityFailed", "export_fp32"]
