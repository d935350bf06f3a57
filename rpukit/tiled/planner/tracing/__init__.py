"""Blocks of memory and the tasks that use them, in the serial run of a program."""
