"""The onnx engine and the device's distribution beside the torch engine."""
