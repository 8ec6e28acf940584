"""Draft models in onnxruntime: 8-bit products on a CPU, for devices without torch."""
