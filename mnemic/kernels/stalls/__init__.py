"""Cycles of a compiled kernel by a simulation of its machine code, without a device: an estimate.

instructions.py    what nvdisasm prints → instructions with their control words
units.py           an instruction → the unit that it takes, for how long, and when it is done
path.py            instructions and loops → the order in which a warp goes through a turn
multiprocessor.py  a path → the cycles of a turn, by warps on four schedulers
cycles.py          a kernel → all of it in a few numbers
shapes.py          these numbers → programs, waves and milliseconds of a call
"""
