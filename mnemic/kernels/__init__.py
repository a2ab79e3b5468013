"""Generated kernels without a device: compiled offline, counted, and verified on this machine."""
