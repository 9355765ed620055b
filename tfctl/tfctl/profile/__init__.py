"""The commands of `tfctl profile`, one file each."""
