"""The packaged specs whose rule is one of ONNX's ``LinearAttention``."""

FOUND = {
    "linear-attention": "linear",
    "gla": "gated", "lightning-attention": "gated", "mamba": "gated", "mamba2": "gated",
    "retnet": "gated",
    "deltanet": "delta", "deltanet-negative": "delta", "longhorn": "delta",
    "gated-deltanet": "gated_delta", "kda": "gated_delta",
}  # fmt: skip
"""The packaged specs that are one of its rules, as mathematics finds them."""
