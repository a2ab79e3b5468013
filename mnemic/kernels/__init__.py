"""Tools for generated kernels: compile them without a device, count their costs, verify and tune
them."""
