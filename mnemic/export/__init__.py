"""Models as ONNX graphs: written, run in ONNX Runtime, and compared with PyTorch."""
