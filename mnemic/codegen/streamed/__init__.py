"""Plans over kept pairs as Triton kernels: what has an entry a pair goes by block by block."""
