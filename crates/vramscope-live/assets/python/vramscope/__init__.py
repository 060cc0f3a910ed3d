"""vramscope inside a Python program."""
