"""The pure policy: state in, plan out. No clock, no I/O, no torch, no sglang.

Importing this package loads nothing heavy; import the module you need.
"""
