"""Artifact + target → engine: one builder for TensorRT and TensorRT-RTX, the fused layers, and the engine cache."""
