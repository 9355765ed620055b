"""Measures what a running engine can do: steps, copies, pauses. `tfctl profile measure` writes it into a profile."""
