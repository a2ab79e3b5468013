"""Plans over kept pairs as Triton kernels, which loop over the pairs block by block."""
